"""What an operator may do to a running engine: faults, restart, an empty cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from cachemodel.errors import UserError
from engine.errors import NotFound, RequestError
from engine.faults import Fault, Faults

if TYPE_CHECKING:
    from engine.core import Engine

SPEC_BYTES = 4096


class Admin:
    """Endpoints. restart: has the process begin again, None where it cannot."""

    def __init__(self, engine: Engine, faults: Faults, restart: Callable[[], None] | None) -> None:
        self._engine, self._faults, self._restart = engine, faults, restart

    async def faults(self, request: Request) -> Response:
        return self._answer()

    async def inject(self, request: Request) -> Response:
        """Switch a fault on: the specification as text, or {"spec": "..."} as JSON."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > SPEC_BYTES:
                raise RequestError(f"A fault is one line of at most {SPEC_BYTES} bytes.", param="spec")
        try:
            spec = bytes(body).decode()
            if spec.lstrip().startswith("{"):
                spec = msgspec.json.decode(spec, type=dict[str, str])["spec"]
        except (UnicodeDecodeError, msgspec.DecodeError, KeyError):
            raise RequestError(
                'A fault is a line of text, or {"spec": "..."} as JSON.', param="spec"
            ) from None
        try:
            self._faults.add(spec)
        except UserError as error:
            raise RequestError(str(error), code="invalid_fault", param="spec") from None
        return self._answer()

    async def clear(self, request: Request) -> Response:
        """Switch off all faults, or the one that `id` names."""
        name = request.query_params.get("id")
        if name is None:
            self._faults.clear()
        elif not name.isdecimal() or not self._faults.remove(int(name[:18])):
            raise NotFound(f"No fault has the id {name[:32]}.", param="id")
        return self._answer()

    async def reset_prefix_cache(self, request: Request) -> Response:
        await asyncio.to_thread(self._engine.reset_prefix_cache)
        return Response()

    async def restart(self, request: Request) -> Response:
        """Begin again as a new process image: requests under way die, and so does the KV of every tier."""
        if self._restart is None:
            raise RequestError("This server is part of another process and cannot be restarted.")
        return Response(status_code=202, background=BackgroundTask(self._restart))

    def _answer(self) -> Response:
        faults = {"faults": [_told(fault) for fault in self._faults.active()]}
        return Response(msgspec.json.encode(faults), media_type="application/json")


def _told(fault: Fault) -> dict[str, str | int]:
    return {"id": fault.id, "spec": fault.spec}
