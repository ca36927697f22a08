(function () {
  "use strict";
  var dark = window.matchMedia && window.matchMedia("(prefers-color-scheme: dark)").matches;
  var options = {
    renderer: "svg",
    actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
    tooltip: { theme: dark ? "dark" : "light" },
  };
  var charts = Array.prototype.slice.call(document.querySelectorAll(".chart"));
  Promise.all(
    charts.map(function (place) {
      var spec = JSON.parse(document.getElementById(place.dataset.spec).textContent);
      return window.vegaEmbed(place, spec, options);
    })
  ).then(
    function () { document.body.dataset.drawn = charts.length; },
    function (error) { document.body.dataset.failed = String(error); throw error; }
  );
  document.querySelectorAll("a[data-of]").forEach(function (link) {
    var spec = JSON.parse(document.getElementById(link.dataset.of).textContent);
    link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(spec.datasets[link.dataset.set]);
  });
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details:not(.gallery):not(.vega-embed details)").forEach(function (each) { each.open = true; });
  });
  function unfold() {
    var target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  }
  // What does not fit can be scrolled: its end fades, and the keyboard reaches it.
  var scrolled = Array.prototype.slice.call(document.querySelectorAll(".scroll"));
  function hint(place) {
    var hidden = place.scrollWidth - place.clientWidth;
    place.classList.toggle("more", hidden - place.scrollLeft > 1);
    if (hidden > 1) { place.tabIndex = 0; } else { place.removeAttribute("tabindex"); }
  }
  scrolled.forEach(function (place) {
    place.addEventListener("scroll", function () { hint(place); });
    if (window.ResizeObserver) { new ResizeObserver(function () { hint(place); }).observe(place); }
    hint(place);
  });
  window.addEventListener("hashchange", unfold);
  unfold();
})();
