(function () {
  "use strict";
  const MOST = 200; // tiles at once
  const POINTS = 240, SPACING = 1; // as on the server's board
  const WIDTH = 300, HEIGHT = 64;
  const cameras = new Map(); // name → what is known of the camera
  const tiles = new Map(); // name → its tile, for those that are shown
  const dirty = new Set();
  let limits = {}, token = "", drawing = false, announced = "";

  const find = (id) => document.getElementById(id);
  const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

  // ---- what the server tells ----

  function note(camera) {
    const known = cameras.get(camera.camera) || { points: [] };
    const points = camera.history || known.points;
    const now = { ...known, ...camera, points };
    if (!camera.history && camera.time !== undefined) addPoint(points, camera);
    delete now.history;
    cameras.set(camera.camera, now);
    dirty.add(camera.camera);
    draw();
  }

  function addPoint(points, camera) {
    const last = points[points.length - 1];
    const values = [camera.shift, camera.error ? camera.error[0] : null];
    if (last && camera.time - last[0] < SPACING) { last[1] = values[0]; last[2] = values[1]; }
    else points.push([camera.time, ...values]);
    if (points.length > POINTS) points.shift();
  }

  function forget(name) { cameras.delete(name); draw(); }

  const HANDLERS = {
    hello(value) {
      limits = value.limits;
      find("model").textContent = `${value.model} · covshift ${value.version}`;
    },
    cameras(value) { value.cameras.forEach(note); },
    gone(value) { value.cameras.forEach(forget); },
    only(value) {
      const names = new Set(value.cameras);
      [...cameras.keys()].filter((name) => !names.has(name)).forEach(forget);
      document.body.dataset.ready = "1";
      draw();
    },
  };

  // EventSource cannot send a token, so the events are read from a response.
  async function listen() {
    for (let pause = 1; ; pause = Math.min(2 * pause, 10)) {
      try {
        const answer = await fetch("v1/events", { headers: headers(), cache: "no-store" });
        if (answer.status === 401) {
          connection("token needed");
          await askToken("The server asks for a token: the one for inference shows the cameras, the one for control also lets you reset and freeze them.");
          pause = 0.5;
          continue;
        }
        if (!answer.ok) throw new Error(answer.statusText);
        connection("live");
        pause = 0.5;
        await read(answer.body.getReader());
      } catch (error) {
        if (!(error instanceof TypeError) && error.name !== "AbortError") console.warn(error.message);
      }
      connection("not connected");
      await sleep(pause);
    }
  }

  async function read(reader) {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const messages = text.split("\n\n");
      text = messages.pop();
      for (const message of messages) {
        const match = /^event: (\w+)\ndata: (.*)$/.exec(message);
        if (match && match[1] in HANDLERS) HANDLERS[match[1]](JSON.parse(match[2]));
      }
    }
  }

  function connection(text) {
    const place = find("connection");
    if (place.textContent !== text) place.textContent = text;
    place.dataset.live = text === "live" ? "1" : "0";
  }

  // ---- tokens and control ----

  function headers() { return token ? { Authorization: `Bearer ${token}` } : {}; }

  function askToken(why) {
    const dialog = find("ask");
    find("ask-why").textContent = why;
    find("token").value = "";
    if (!dialog.open) dialog.showModal();
    return new Promise((done) => {
      dialog.addEventListener("close", () => {
        const given = dialog.returnValue === "ok";
        if (given) token = find("token").value.trim();
        find("token").value = "";
        done(given);
      }, { once: true });
    });
  }

  async function control(name, action) {
    for (;;) {
      const address = `v1/cameras/${encodeURIComponent(name)}/${action}`;
      const answer = await fetch(address, { method: "POST", headers: headers() });
      if (answer.status !== 401) return answer;
      if (!(await askToken(`To ${action} a camera, the server asks for the token for control.`))) return null;
    }
  }

  async function press(name, action) {
    const tile = tiles.get(name);
    const buttons = tile.querySelectorAll("button");
    const focused = document.activeElement;
    buttons.forEach((each) => { each.disabled = true; });
    try {
      const answer = await control(name, action);
      if (answer && answer.ok) {
        const states = { freeze: "frozen", follow: "following", reset: "reset" };
        const why = { freeze: "what this camera remembers is kept as it is", follow: "follows from its next image on", reset: "what was remembered is forgotten" };
        note({ camera: name, state: states[action], why: why[action] });
        say(`${name}: ${why[action]}`);
      } else if (answer) {
        say(`${name}: the server refused (${answer.status})`, true);
      }
    } catch {
      say(`${name}: the server cannot be reached`, true);
    } finally {
      buttons.forEach((each) => { each.disabled = false; });
      if (tile.contains(focused)) focused.focus();
    }
  }

  function say(text, visible) {
    find("said").textContent = text;
    find("said").classList.toggle("quiet", !visible);
  }

  // ---- drawing ----

  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; layOut(); });
  }

  function chosen() {
    const part = find("name").value.trim().toLowerCase(), state = find("state").value;
    return [...cameras.keys()].filter((name) => {
      const camera = cameras.get(name);
      const wanted = !state || (state === "alarm" ? alarmed(camera) : camera.state === state);
      return wanted && name.toLowerCase().includes(part);
    }).sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  }

  const alarmed = (camera) => Boolean(camera.alarms && camera.alarms.length);

  function layOut() {
    const names = chosen(), shown = names.slice(0, MOST), keep = new Set(shown), place = find("tiles");
    for (const [name, tile] of tiles) if (!keep.has(name)) { tile.remove(); tiles.delete(name); }
    shown.forEach((name, index) => {
      if (!tiles.has(name)) { tiles.set(name, makeTile(name)); dirty.add(name); }
      const tile = tiles.get(name);
      if (place.children[index] !== tile) place.insertBefore(tile, place.children[index] || null);
      if (dirty.has(name)) drawTile(tile, cameras.get(name));
    });
    dirty.clear();
    find("empty").hidden = cameras.size > 0;
    find("filter").hidden = !cameras.size;
    find("more").hidden = names.length <= MOST && (names.length > 0 || !cameras.size);
    find("more").textContent = names.length ? `${names.length - MOST} more cameras; choose by name or state.` : "No camera is like that.";
    summarise();
  }

  function summarise() {
    const all = [...cameras.entries()];
    const counts = {};
    all.forEach(([, camera]) => { counts[camera.state] = (counts[camera.state] || 0) + 1; });
    const parts = Object.entries(counts).sort().map(([state, count]) => `${count} ${state}`);
    find("counts").textContent = all.length ? `${all.length} ${all.length === 1 ? "camera" : "cameras"}: ${parts.join(", ")}` : "";
    const names = all.filter(([, camera]) => alarmed(camera)).map(([name]) => name).sort();
    if (names.join("\n") === announced) return;
    announced = names.join("\n");
    const place = find("alarms");
    place.hidden = !names.length;
    place.replaceChildren(names.length === 1 ? "Alarm: " : `${names.length} alarms: `, ...names.slice(0, 20).map((name) => {
      const link = document.createElement("a");
      link.href = `#${encodeURIComponent(`camera-${name}`)}`;
      link.textContent = name;
      return link;
    }));
  }

  const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

  function makeTile(name) {
    const tile = find("tile").content.firstElementChild.cloneNode(true);
    tile.id = `camera-${name}`;
    tile.setAttribute("aria-label", `Camera ${name}`);
    const reset = tile.querySelector(".reset"), freeze = tile.querySelector(".freeze");
    tile.querySelector("h2").textContent = name;
    tile.querySelector("img").alt = `Last picture of ${name}`;
    reset.setAttribute("aria-label", `Reset ${name}`);
    reset.title = "Forget what this camera has seen";
    freeze.setAttribute("aria-label", `Freeze ${name}`);
    freeze.title = "Keep what this camera remembers as it is";
    reset.addEventListener("click", () => press(name, "reset"));
    freeze.addEventListener("click", () => press(name, cameras.get(name).state === "frozen" ? "follow" : "freeze"));
    return tile;
  }

  function drawTile(tile, camera) {
    const set = (selector, text) => {
      const place = tile.querySelector(selector);
      if (place.textContent !== text) place.textContent = text;
    };
    tile.dataset.state = camera.state;
    tile.dataset.alarm = alarmed(camera) ? "1" : "0";
    set(".badge", camera.state);
    set(".alarm", (camera.alarms || []).map((text) => sentence(text.slice(camera.camera.length + 2))).join(" "));
    tile.querySelector(".alarm").hidden = !alarmed(camera);
    set(".images", camera.images === undefined ? "–" : camera.images.toLocaleString("en"));
    set(".remembered", camera.remembered === undefined ? "–" : String(camera.remembered));
    set(".resets", camera.resets === undefined ? "–" : String(camera.resets));
    set(".time", camera.time === undefined ? "–" : new Date(1000 * camera.time).toLocaleTimeString("en-GB"));
    const why = camera.why || "no images since the server started";
    set(".why", sentence(why));
    tile.querySelector(".freeze").setAttribute("aria-pressed", String(camera.state === "frozen"));
    drawPicture(tile, camera);
    const shift = (value) => value.toFixed(3), percent = (value) => `${Math.round(100 * value)} %`;
    const error = camera.error ? `${percent(camera.error[0])} (${Math.round(100 * camera.error[1])}–${percent(camera.error[2])})` : "cannot tell";
    drawChart(tile.querySelector(".chart.shift"), camera.points, 1, camera.shift == null ? "–" : shift(camera.shift), limits.shift, shift, 0.05);
    drawChart(tile.querySelector(".chart.error"), camera.points, 2, error, limits.error, percent, 0.2);
    const points = camera.points;
    set(".from", points.length > 1 ? ago(points[points.length - 1][0] - points[0][0]) : "");
  }

  function drawPicture(tile, camera) {
    const image = tile.querySelector("img");
    tile.querySelector(".body").classList.toggle("pictured", Boolean(camera.picture));
    if (!camera.picture || image.dataset.time === String(camera.time)) return;
    image.dataset.time = camera.time;
    image.onload = () => image.classList.toggle("small", image.naturalWidth < 100);
    image.src = `data:image/jpeg;base64,${camera.picture}`;
    image.hidden = false;
  }

  function ago(seconds) {
    if (seconds < 90) return `${Math.round(seconds)} s ago`;
    return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
  }

  function drawChart(figure, points, column, now, limit, format, least) {
    const known = points.filter((point) => point[column] != null);
    const values = known.map((point) => point[column]).sort((a, b) => a - b);
    // The first images after a reset are far from everything by chance; they must not flatten the rest.
    const high = values.length ? values[Math.floor(0.95 * (values.length - 1))] : 0;
    const top = Math.max(1.25 * high, 1.25 * (limit || 0), least);
    const first = points.length ? points[0][0] : 0;
    const span = Math.max(points.length ? points[points.length - 1][0] - first : 0, 1);
    const y = (value) => (HEIGHT - 2 - (HEIGHT - 4) * Math.min(value / top, 1.05)).toFixed(1);
    let path = "", pen = false;
    for (const point of points) {
      if (point[column] == null) { pen = false; continue; }
      path += `${pen ? "L" : "M"}${((WIDTH * (point[0] - first)) / span).toFixed(1)} ${y(point[column])}`;
      pen = true;
    }
    figure.querySelector(".line").setAttribute("d", path);
    figure.querySelector(".limit").setAttribute("d", limit ? `M0 ${y(limit)}H${WIDTH}` : "");
    const name = figure.querySelector("span").textContent;
    if (figure.querySelector("b").textContent !== now) figure.querySelector("b").textContent = now;
    const highest = values.length ? `, highest ${format(values[values.length - 1])}` : "";
    figure.querySelector("svg").setAttribute("aria-label", `${name} over time: now ${now}${highest}${limit ? `, limit ${format(limit)}` : ""}`);
  }

  find("name").addEventListener("input", draw);
  find("state").addEventListener("change", draw);
  find("filter").addEventListener("submit", (event) => event.preventDefault());
  draw();
  listen();
})();
