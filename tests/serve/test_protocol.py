"""The Open Inference Protocol, as a client that nobody here wrote speaks it, and as nobody should."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import tritonclient.http as triton
from networks import images
from serving import SIDE, serving, tiny_model
from torch import Tensor

import covshift
from covshift import Batch, Live, Source, Stream
from covshift.serve.protocol import LENGTH_HEADER, Question, camera_name, format_answer, parse
from covshift.serve.refusals import Refusal
from covshift.serve.settings import Settings

FRAMES = 12
SAMPLE = (3, SIDE, SIDE)


def frames(camera: int, number: int = FRAMES) -> Tensor:
    return images(number, SIDE, seed=camera, dtype=torch.float32) + 0.3 * (camera % 3)


def ask(client: triton.InferenceServerClient, x: Tensor, binary: bool, **more: object) -> triton.InferResult:
    tensor = triton.InferInput("images", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x.numpy(), binary_data=binary)
    output = triton.InferRequestedOutput("logits", binary_data=binary)
    return client.infer("model", [tensor], outputs=[output], **more)


def test_a_client_that_nobody_here_wrote():
    with serving() as server:
        client = triton.InferenceServerClient(server.address)
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("model")
        assert not client.is_model_ready("other")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "sequence"]
        metadata = client.get_model_metadata("model", "1")
        assert metadata["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, SIDE, SIDE]}]
        assert metadata["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 4]}]
        answers = [ask(client, frames(0, 2), binary, request_id="me") for binary in (True, False)]
        assert np.array_equal(answers[0].as_numpy("logits"), answers[1].as_numpy("logits"))
        assert answers[0].get_response()["id"] == "me"
        with pytest.raises(triton.InferenceServerException, match=r"expected model 'model'"):
            client.get_model_metadata("other")
        client.close()


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("policy", [Live(memory=20), Stream(prior=4), Batch(prior=4)])
def test_cameras_in_any_interleaving_are_answered_as_by_adapt(policy, passes):
    model = tiny_model()
    source = Source.measure(model, images(64, SIDE, seed=99, dtype=torch.float32), progress=False)
    check_interleaved(policy, model, source, {camera: frames(camera) for camera in range(1, 9)}, passes)


@pytest.mark.slow
def test_eight_cameras_of_500_frames_are_answered_as_by_adapt():
    """Of a real network, in weather that changes every 125 frames."""
    model, data = covshift.open_model("builtin:resnet20"), covshift.open_data("builtin:cifar10")
    source = Source.measure(model, data.loader(model, batch_size=50, limit=500), progress=False)
    weather = ["clean/0", "fog/5", "gaussian_noise/4", "brightness/5"]
    shown = {each: data.pixels(model, condition=each, limit=500, order="shuffled", seed=3).images for each in weather}
    streams = {}
    for camera in range(1, 9):
        order = np.random.default_rng(camera).permutation(500).reshape(4, 125)
        parts = [shown[weather[(camera + part) % 4]][places] for part, places in enumerate(order)]
        streams[camera] = model.preprocess.tensor(np.concatenate(parts))
    check_interleaved(Live(), model, source, streams, passes=2)


def check_interleaved(
    policy: covshift.Policy, model: covshift.Model, source: Source, streams: dict, passes: int
) -> None:
    """Eight threads, one camera each, as fast as they can, some with JSON: the answers of eight separate runs."""
    wanted = {}
    for camera, stream in streams.items():
        with torch.no_grad(), covshift.adapt(model, policy, source=source):
            wanted[camera] = torch.cat([model(batch) for batch in stream.split(1 + camera % 2)])

    settings = Settings(batch=8, delay=0.002, passes=passes)
    with serving(settings, policy=policy, model=model, source=source) as server:
        batches: list[int] = []
        server.service.feed.subscribe(lambda event: batches.append(event.batch))

        def follow(camera: int) -> Tensor:
            client = triton.InferenceServerClient(server.address)
            parts = [
                ask(client, batch, binary=camera > 2, sequence_id=camera, sequence_start=step == 0).as_numpy("logits")
                for step, batch in enumerate(streams[camera].split(1 + camera % 2))
            ]
            client.close()
            return torch.from_numpy(np.concatenate(parts))

        with ThreadPoolExecutor(8) as pool:
            answers = dict(zip(wanted, pool.map(follow, wanted), strict=True))
    for camera, logits in answers.items():
        torch.testing.assert_close(logits, wanted[camera], rtol=0, atol=1e-4)
        assert torch.equal(logits.argmax(1), wanted[camera].argmax(1))
    assert max(batches) > 2, "no two cameras ever shared a pass"


def test_sequences_start_and_end():
    x = frames(1, 2).numpy()
    with serving(policy=Stream(prior=4)) as server:

        def remembered(**parameters: object) -> float:
            return server.infer(x, "gate", **parameters).json["parameters"]["images_remembered"]

        assert [remembered(), remembered(), remembered(sequence_start=True)] == [2, 4, 2]
        assert remembered(sequence_end=True) == 4
        assert "gate" not in server.service.cameras
        assert remembered() == 2
        assert server.infer(x).json["parameters"]["images_remembered"] == 2
        assert server.infer(x, 0).json["parameters"].get("camera") is None
        body = json.dumps(
            {"inputs": [{"name": "images", "shape": [2, *SAMPLE], "datatype": "FP32", "data": x.tolist()}]}
        )
        answer = server.request("POST", "/v2/models/model/infer", body.encode(), {"X-Stream-Id": "gate"})
        assert answer.json["parameters"]["camera"] == "gate"
        assert answer.json["parameters"]["images_remembered"] == 4
        assert [event for event in server.service.fleet if event.startswith(" ")] == []


def tensor(**changes: object) -> dict[str, object]:
    given = {"name": "images", "shape": [1, *SAMPLE], "datatype": "FP32", "data": [0.0] * (3 * SIDE * SIDE)}
    return {**given, **changes}


MALFORMED = {
    "nothing": b"",
    "not JSON": b"{",
    "not UTF-8": b'{"id": "\xff"}',
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "no inputs": b"{}",
    "two inputs": {"inputs": [tensor(), tensor()]},
    "input is a number": {"inputs": [3]},
    "other name": {"inputs": [tensor(name="x")]},
    "other type": {"inputs": [tensor(datatype="INT64")]},
    "no shape": {"inputs": [tensor(shape=None)]},
    "shape of booleans": {"inputs": [tensor(shape=[True, *SAMPLE])]},
    "shape with -1": {"inputs": [tensor(shape=[-1, *SAMPLE])]},
    "shape without end": {"inputs": [tensor(shape=json.loads("[" * 200 + "]" * 200))]},
    "other side": {"inputs": [tensor(shape=[1, 3, SIDE, SIDE + 1])]},
    "too few": {"inputs": [tensor(data=[0.0])]},
    "texts": {"inputs": [tensor(data=["0"] * (3 * SIDE * SIDE))]},
    "nulls": {"inputs": [tensor(data=[None] * (3 * SIDE * SIDE))]},
    "ragged": {"inputs": [tensor(data=[[0.0], [0.0, 1.0]])]},
    "booleans": {"inputs": [tensor(data=[True] * (3 * SIDE * SIDE))]},
    "NaN": {"inputs": [tensor(data=[float("nan")] * (3 * SIDE * SIDE))]},
    "above float32": {"inputs": [tensor(data=[1e300] * (3 * SIDE * SIDE))]},
    "huge integers": {"inputs": [tensor(data=[10**400] * (3 * SIDE * SIDE))]},
    "binary size without data": {"inputs": [tensor(parameters={"binary_data_size": 5})]},
    "parameters are a list": {"inputs": [tensor()], "parameters": [1]},
    "id is a number": {"inputs": [tensor()], "id": 3},
    "camera is a list": {"inputs": [tensor()], "parameters": {"sequence_id": []}},
    "camera is true": {"inputs": [tensor()], "parameters": {"sequence_id": True}},
    "camera below 0": {"inputs": [tensor()], "parameters": {"sequence_id": -1}},
    "camera with a path": {"inputs": [tensor()], "parameters": {"sequence_id": "../../etc/passwd"}},
    "camera too long": {"inputs": [tensor()], "parameters": {"sequence_id": "a" * 129}},
    "start is a text": {"inputs": [tensor()], "parameters": {"sequence_start": "yes"}},
    "other output": {"inputs": [tensor()], "outputs": [{"name": "x"}]},
    "outputs are a text": {"inputs": [tensor()], "outputs": "logits"},
    "classification": {"inputs": [tensor()], "outputs": [{"name": "logits", "parameters": {"classification": 3}}]},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests_are_refused(name):
    body = MALFORMED[name]
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(Refusal) as refused:
        parse(body, None, SAMPLE, 8)
    assert refused.value.status == 400


@pytest.mark.parametrize("header", ["-1", "x", "99999999", "1e3", "٣", ""])
def test_lengths_of_headers_are_checked(header):
    with pytest.raises(Refusal, match=LENGTH_HEADER):
        parse(json.dumps({"inputs": [tensor()]}).encode(), header, SAMPLE, 8)


def test_too_many_images_are_refused():
    with pytest.raises(Refusal) as refused:
        parse(json.dumps({"inputs": [tensor(shape=[9, *SAMPLE])]}).encode(), None, SAMPLE, 8)
    assert refused.value.status == 413


def test_an_image_of_another_size_is_told_the_size_of_the_model():
    with pytest.raises(Refusal, match=r"expected images of the shape \[images, 3, 12, 12\], got \[1, 3, 12, 13\]"):
        parse(json.dumps({"inputs": [tensor(shape=[1, 3, SIDE, SIDE + 1])]}).encode(), None, SAMPLE, 8)


def test_nested_data_and_strange_texts_are_read():
    nested = np.zeros((1, *SAMPLE)).tolist()
    question = parse(json.dumps({"inputs": [tensor(data=nested)], "id": "\ud800"}).encode(), None, SAMPLE, 8)
    answer = format_answer(question, "model", np.zeros((1, 4), np.float32), {})
    assert json.loads(answer.content)["id"] == "\ud800"
    assert camera_name("cam-1.north:2@site") == "cam-1.north:2@site"


def test_binary_answers_have_the_layout_of_the_protocol():
    logits = np.arange(8, dtype=np.float32).reshape(2, 4)
    question = Question(np.zeros((2, *SAMPLE), np.float32), binary=True)
    content, headers = format_answer(question, "model", logits, {})
    head = int(headers[LENGTH_HEADER])
    assert json.loads(content[:head])["outputs"][0]["parameters"] == {"binary_data_size": 32}
    assert np.array_equal(np.frombuffer(content[head:], "<f4").reshape(2, 4), logits)


PIECES = [b"null", b"[[", b"}", b"-1", b"1e999", b'"', b"NaN", b"\x00", b"{}", b"true"]


def mutated(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    """A request with some bytes changed, cut, doubled or put in place of others."""
    body = bytearray(json.dumps({"inputs": [tensor(data=[0.5] * 432)], "parameters": {"sequence_id": 3}}).encode())
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(body)) if body else 0
        kind = rng.randrange(4)
        if kind == 0 and body:
            body[place] = rng.randrange(256)
        elif kind == 1:
            del body[place : place + rng.randrange(1, 400)]
        elif kind == 2:
            body[place:place] = rng.choice(PIECES)
        else:
            body += body[place : place + 50]
    headers = {LENGTH_HEADER: str(rng.randrange(-5, 3000))} if rng.random() < 0.3 else {}
    return bytes(body), headers


def fuzz(number: int) -> set[int]:
    rng, statuses = random.Random(0), set()
    with serving() as server:
        for _ in range(number):
            body, headers = mutated(rng)
            statuses.add(server.request("POST", "/v2/models/model/infer", body, headers).status)
        assert server.infer(np.zeros((1, *SAMPLE), np.float32), 5).status == 200
    return statuses


def test_mutated_requests_are_never_an_error_of_ours():
    assert fuzz(200) <= {200, 400, 413}


@pytest.mark.slow
def test_many_mutated_requests_are_never_an_error_of_ours():
    assert fuzz(10_000) <= {200, 400, 413}
