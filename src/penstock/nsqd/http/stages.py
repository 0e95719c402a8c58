"""Staging and committing over HTTP: `/stage`, `/stage/commit`, `/stage/abort`, `/stage/last`,
`/stage/list`.

For programs that write much at a time and once only, as the Spark sink does: its tasks stage blocks
of batches, its driver commits all of them, and sends the commit again until it is answered
(docs/http.md, docs/guarantees.md).
"""

from collections.abc import Generator
from typing import Any

import msgspec

from penstock import errors, limits
from penstock.broker.commits.apps import CommitParts, Ref
from penstock.broker.commits.blocks import BlockInvalid, Contents, check_blocks
from penstock.broker.commits.commit import Committed
from penstock.broker.commits.stage_file import StageHead
from penstock.broker.topics.topic import Topic
from penstock.net.api import Answer, HttpError, Parameters, because, error_response, json_response
from penstock.nsqd.http.arguments import SHOWN_OF_NUMBER, invalid, missing
from penstock.nsqd.http.deps import Call, Deps, unavailable


class _Named(msgspec.Struct):
    topic: str
    stage: str
    partition: int = 0


class _Body(msgspec.Struct):
    stages: list[_Named]


class Staging:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._commits = deps.broker.commits
        self._parts = CommitParts()

    # --- staging ---

    def stage(self, call: Call) -> None:
        parameters = call.parameters
        name, owner = _label(parameters, "stage"), _owner(call)
        partition = call.number("partition")
        body = call.request.body

        def checked(contents: Contents) -> None:
            def put(topic: Topic) -> None:
                self._check_due(topic, contents.due_last_ns)
                head = StageHead(
                    topic.name, topic.identity, name, contents.messages, len(body),
                    self._deps.clock.wall_ns(), partition, **owner,
                )  # fmt: skip
                self._put(topic, head, body, call.answer)

            call.with_topic(put)

        work = _refusing(check_blocks(body, self._deps.options.max_msg_size))
        call.in_turns(work, checked)

    def _put(self, topic: Topic, head: StageHead, body: bytes, answer: Answer) -> None:
        def done(error: errors.PenstockError | None) -> None:
            if error is not None:
                self._deps.protocol.refused_count += 1
                answer(error_response(refusal(error)))
                return
            staged = {"stage": head.name, "messages": head.count, "bytes": head.bytes}
            answer(json_response(staged))

        try:
            self._commits.stages.put(topic, head, body, done)
        except errors.PenstockError as error:
            done(error)
        self._deps.soon()

    def _check_due(self, topic: Topic, due_last_ns: int) -> None:
        if not due_last_ns:
            return
        delay_ns = due_last_ns - self._deps.clock.wall_ns()
        if delay_ns > self._deps.options.max_req_timeout_ns:
            raise HttpError(400, "INVALID_DEFER")
        topic.age_bound.check(delay_ns)

    # --- committing ---

    def commit(self, call: Call) -> None:
        parameters = call.parameters
        app = _label(parameters, "app")
        version = call.number("version", default=None)
        part, parts = _part(call)
        refs = _refs(call.request.body)
        last = self._commits.last(app)
        if parts > 1 and (last is None or version > last):
            refs = self._gathered(app, version, part, refs)
            if part < parts - 1:
                call.answer(json_response({"committed": False, "part": part}))
                return

        def done(outcome: Committed | errors.PenstockError) -> None:
            if isinstance(outcome, errors.PenstockError):
                call.answer(error_response(refusal(outcome)))
                return
            self._parts.forget(app, version)
            document = {"committed": True, "repeated": outcome.repeated}
            call.answer(json_response({**document, "messages": outcome.messages}))

        self._commits.commit(app, version, refs, done)
        self._deps.soon()

    def _gathered(self, app: str, version: int, part: int, refs: list[Ref]) -> list[Ref]:
        try:
            found = self._parts.add(app, version, part, refs)
        except errors.CommitGap as gap:
            raise refusal(gap) from gap
        if len(found) > limits.COMMIT_STAGES_MAX:
            self._parts.forget(app, version)
            raise HttpError(400, f"INVALID_BODY at most {limits.COMMIT_STAGES_MAX} stages")
        if len(set(found)) != len(found):
            self._parts.forget(app, version)
            raise HttpError(400, "INVALID_BODY a stage is named twice")
        return found

    def list(self, call: Call) -> None:
        """The stages, by app."""
        stages = self._commits.stages
        wanted = call.parameters.get("app")
        found = [row for row in stages.apps.rows() if wanted in (None, row["app"])]
        apps = found[: limits.STAGES_LISTED_MAX]
        document = {"stages": stages.count, "bytes": stages.bytes, "apps": apps}
        call.answer(json_response({**document, "apps_total": len(found)}))

    def abort(self, call: Call) -> None:
        """The stages of a list, or all of an app."""
        parameters = call.parameters
        stages = self._commits.stages
        if "app" in parameters:
            if call.request.body:
                raise HttpError(400, "INVALID_BODY with an app there is no list of stages")
            app = parameters["app"]
            if app:
                _check_label(app, "app")
            version = call.number("version") if "version" in parameters else None
            count = stages.abort_app(app, version)
        else:
            count = stages.abort(_refs(call.request.body))
        call.answer(json_response({"aborted": count}))
        self._deps.soon()

    def last(self, call: Call) -> None:
        app = _label(call.parameters, "app")
        call.answer(json_response({"version": self._commits.last(app)}))


def refusal(error: errors.PenstockError) -> HttpError:
    """The answer to a refused stage or commit."""
    if isinstance(error, errors.StageMissing):
        return HttpError(404, "STAGE_NOT_FOUND", details=_stage_of(error))
    if isinstance(error, errors.NotFound):
        return HttpError(404, f"{error.kind.upper()}_NOT_FOUND", details={error.kind: error.name})
    if isinstance(error, errors.TopicChanged):
        details = {"topic": error.topic, "identity": error.identity}
        return HttpError(409, "IDENTITY_CHANGED", details=details)
    if isinstance(error, errors.StageSuperseded):
        details = {"app": error.app, "reason": error.reason}
        return HttpError(409, "ATTEMPT_SUPERSEDED", details=details)
    if isinstance(error, errors.CommitGap):
        return HttpError(409, "PART_MISSING", details={"part": error.expected})
    if isinstance(error, errors.StageExists):
        return HttpError(409, "STAGE_EXISTS", details=_stage_of(error))
    if isinstance(error, errors.StageDamaged):
        return because(422, "STAGE_DAMAGED", error)
    if isinstance(error, errors.CommitUnfinished):
        return because(503, "COMMIT_UNFINISHED", error.reason)
    return unavailable(error)


def _stage_of(error: errors.StageMissing | errors.StageExists) -> dict[str, str | int]:
    details: dict[str, str | int] = {"topic": error.topic, "stage": error.stage}
    return {**details, "partition": error.partition} if error.partition else details


def _refusing(work: Generator[None, None, Contents]) -> Generator[None, None, Contents]:
    try:
        return (yield from work)
    except BlockInvalid as error:
        details = {"position": error.position, "reason": error.reason}
        raise HttpError(400, "BAD_BATCH", details=details) from error


def _label(parameters: Parameters, name: str) -> str:
    text = parameters.get(name)
    if text is None:
        raise missing(name)
    _check_label(text, name)
    return text


def _check_label(text: str, name: str) -> None:
    if not (0 < len(text) <= limits.STAGE_NAME_CHARS_MAX and text.isprintable()):
        rule = f"1 to {limits.STAGE_NAME_CHARS_MAX} printable characters"
        raise invalid(name, text, rule, SHOWN_OF_NUMBER)


def _owner(call: Call) -> dict[str, Any]:
    """The writer of a stage, as in its head; nothing when it gives no name."""
    parameters = call.parameters
    if "app" not in parameters:
        for name in ("version", "attempt"):
            if name in parameters:
                raise HttpError(400, f"MISSING_ARG_APP it is needed with {name}")
        return {}
    attempt = parameters.get("attempt", "")
    if attempt:
        _check_label(attempt, "attempt")
    version = call.number("version", default=None)
    return {"app": _label(parameters, "app"), "app_version": version, "attempt": attempt}


def _part(call: Call) -> tuple[int, int]:
    """(which part of the list, of this many)."""
    most = 10 * -(-limits.COMMIT_STAGES_MAX // limits.COMMIT_PART_STAGES_MAX)
    part, parts = call.number("part"), call.number("parts", default=1)
    if not part < parts <= most:
        rule = f"part counts from 0 and is less than parts, which is {most} at most"
        raise HttpError(400, f"INVALID_ARG_PART {part} of {parts}: {rule}")
    return part, parts


def _refs(body: bytes) -> list[Ref]:
    """The stages that a body names, in order."""
    try:
        stages = msgspec.json.decode(body, type=_Body).stages
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise because(400, "INVALID_BODY", error) from error
    if len(stages) > limits.COMMIT_PART_STAGES_MAX:
        rule = f"at most {limits.COMMIT_PART_STAGES_MAX} stages in one part of the list"
        raise HttpError(400, f"INVALID_BODY {rule}")
    refs = []
    for one in stages:
        _check_label(one.stage, "stage")
        refs.append(Ref(one.topic, one.stage, one.partition))
    if len(set(refs)) != len(refs):
        raise HttpError(400, "INVALID_BODY a stage is named twice")
    return refs
