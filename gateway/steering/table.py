"""All operations of the API, with their paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gateway.steering.acting import Acting
from gateway.steering.letterdesk import LetterDesk
from gateway.steering.parts import GatewayParts
from gateway.steering.seeing import Seeing
from gateway.views.http.models import (
    AnswerModel,
    CostsAnswer,
    CountAnswer,
    DecisionsAnswer,
    DoneAnswer,
    LanesAnswer,
    LetterAnswer,
    LettersAnswer,
    QueriesAnswer,
    QueryAnswer,
    StatusAnswer,
    VmsAnswer,
)
from gateway.views.http.operations import ApiCall, Operation
from gateway.views.http.orders import DecisionsAsked, LettersAsked, NoOrder, OrderModel, PauseOrder, PinOrder
from gateway.views.http.probes.probing import Probed
from gateway.views.http.serving import ServedGateway
from gateway.views.live.history import History

_V1 = "/api/v1"
_QUERY = {"query": "The query's name."}
_VM = {"vm": "The VM's name, as in vm-1."}
_LETTER = {**_QUERY, "position": "The letter's position, from the list."}


def served(parts: GatewayParts, history: History) -> ServedGateway:
    """Return what the HTTP server of a gateway needs."""
    seeing, acting, letters = Seeing(parts), Acting(parts), LetterDesk(parts)
    return ServedGateway(
        answers=seeing,
        rotate=acting.rotate_certificates,
        replay=letters.replay_dead_letters,
        operations=(*_seen(seeing), *_letters(letters), *_actions(acting)),
        history=history,
        probed=Probed(lambda: seeing.phase, seeing.troubles, seeing.measured),
        state_dir=parts.config.gateway.state_dir,
        clock=parts.clock,
    )


def _seen(see: Seeing) -> Sequence[Operation]:
    return (
        _get("/status", "status", "The gateway as a whole.", StatusAnswer, lambda _: see.overview()),
        _get("/queries", "queries", "All queries.", QueriesAnswer, lambda _: QueriesAnswer(queries=see.queries())),
        _get(
            "/queries/{query}", "query", "One query.", QueryAnswer, lambda call: see.query(call.names["query"]), _QUERY
        ),
        _get("/lanes", "lanes", "All lanes of all queries.", LanesAnswer, lambda _: LanesAnswer(lanes=see.lanes())),
        _get("/vms", "vms", "The VMs that live.", VmsAnswer, lambda _: VmsAnswer(vms=see.vms())),
        _get("/costs", "costs", "Money spent, reserved and left.", CostsAnswer, lambda _: see.costs()),
        Operation(
            method="get",
            path=f"{_V1}/decisions",
            name="decisions",
            summary="What was decided about each query, and why; the newest first.",
            answer=DecisionsAnswer,
            asked=DecisionsAsked,
            run=lambda call: see.decisions(call.asked),
        ),
    )


def _letters(letters: LetterDesk) -> Sequence[Operation]:
    path = f"{_V1}/queries/{{query}}/dead-letters"
    return (
        Operation(
            method="get",
            path=path,
            name="deadLetters",
            summary="The dead letters of a query, the oldest first.",
            answer=LettersAnswer,
            asked=LettersAsked,
            needs_token=True,
            names=_QUERY,
            run=lambda call: letters.letters(call.names["query"], call.asked),
        ),
        Operation(
            method="get",
            path=f"{path}/{{position}}",
            name="deadLetter",
            summary="One dead letter.",
            answer=LetterAnswer,
            needs_token=True,
            names=_LETTER,
            run=lambda call: letters.letter(call.names["query"], call.names["position"]),
        ),
        _post(
            "/queries/{query}/dead-letters/replay",
            "replayDeadLetters",
            "Feed all dead letters of a query back into it as new events.",
            lambda call: letters.replay(call.names["query"]),
            answer=CountAnswer,
            names=_QUERY,
        ),
        _post(
            "/queries/{query}/dead-letters/drop",
            "dropDeadLetters",
            "Delete all dead letters of a query.",
            lambda call: letters.drop(call.names["query"]),
            answer=CountAnswer,
            names=_QUERY,
        ),
    )


def _actions(act: Acting) -> Sequence[Operation]:
    return (
        _post(
            "/queries/{query}/pin",
            "pin",
            "Send a fixed part of a query's events to VMs, whatever its latency.",
            lambda call: act.pin(call.names["query"], call.order),
            order=PinOrder,
            names=_QUERY,
        ),
        _post(
            "/queries/{query}/unpin", "unpin", "End a pin.", lambda call: act.unpin(call.names["query"]), names=_QUERY
        ),
        _post(
            "/queries/{query}/restart",
            "restart",
            "Open a query that has failed again, now.",
            lambda call: act.restart(call.names["query"]),
            names=_QUERY,
        ),
        _post(
            "/vms/{vm}/drain",
            "drainVm",
            "Send a VM no more runs, let it finish those it has, and terminate it.",
            lambda call: act.stop_vm(call.names["vm"], at_once=False),
            names=_VM,
        ),
        _post(
            "/vms/{vm}/stop",
            "stopVm",
            "Terminate a VM now; its open runs are dispatched elsewhere.",
            lambda call: act.stop_vm(call.names["vm"], at_once=True),
            names=_VM,
        ),
        _post(
            "/decisions/pause",
            "pauseDecisions",
            "Leave VMs and shares as they are for some time, as far as the budget allows.",
            lambda call: act.pause(call.order.for_s),
            order=PauseOrder,
        ),
        _post("/decisions/resume", "resumeDecisions", "Decide again.", lambda _: act.resume()),
        _post(
            "/reload",
            "reload",
            "Read the config file again; take in all of it, or nothing.",
            lambda _: act.reload(),
        ),
        _post("/drain", "drain", "Deliver what was read, terminate all VMs, and exit.", lambda _: act.drain()),
    )


def _get(
    path: str,
    name: str,
    summary: str,
    answer: type[AnswerModel],
    run: Callable[[ApiCall], AnswerModel],
    names: dict[str, str] | None = None,
) -> Operation:
    async def answered(call: ApiCall) -> AnswerModel:
        return run(call)

    return Operation(
        method="get", path=_V1 + path, name=name, summary=summary, answer=answer, run=answered, names=names or {}
    )


def _post(
    path: str,
    name: str,
    summary: str,
    run: Callable[[ApiCall], Any],
    *,
    answer: type[AnswerModel] = DoneAnswer,
    order: type[OrderModel] = NoOrder,
    names: dict[str, str] | None = None,
) -> Operation:
    async def answered(call: ApiCall) -> AnswerModel:
        done = run(call)
        found: AnswerModel = await done if not isinstance(done, AnswerModel) else done
        return found

    return Operation(
        method="post",
        path=_V1 + path,
        name=name,
        summary=summary,
        answer=answer,
        order=order,
        needs_token=True,
        names=names or {},
        run=answered,
    )
