"""Write a loop nest as the source of a Triton kernel, with a statement for each term that is reused or long."""

from __future__ import annotations

import dataclasses
import math

from collage_triton.elements import TRITON_TYPES
from collage_triton.nest import Nest, Store, walk
from collage_triton.spelling import CALLS, INFIX, bare, full, identity, literal, step
from collage_triton.terms import Term, Var
from collage_triton.tiles import Tile

KERNEL = "kernel"
"""Name of the kernel in its module."""

_MULTIPLY = "\n\n@triton.jit\ndef _multiply(a, b):\n    return a * b\n"
_LONG = 72


@dataclasses.dataclass(eq=False)
class _Scope:
    """A block of statements: the kernel's body, or a loop's."""

    parent: _Scope | None
    known: set[Var]
    lines: list[str] = dataclasses.field(default_factory=list)
    names: dict[Term, str] = dataclasses.field(default_factory=dict)
    origin: str = ""

    def name_of(self, term: Term) -> str | None:
        scope: _Scope | None = self
        while scope is not None:
            if term in scope.names:
                return scope.names[term]
            scope = scope.parent
        return None

    def knows(self, free: frozenset[Var]) -> bool:
        missing = free - self.known
        return not missing or (self.parent is not None and self.parent.knows(missing))


def source_of(nest: Nest, tile: Tile) -> str:
    """Return the source of the module.

    Args:
        nest: The loop nest.
        tile: Tile sizes of the nest.
    """
    return _Emitter(nest, tile).module()


def grid_of(nest: Nest, tile: Tile) -> tuple[int, int]:
    """Return the number of programs along both grid axes."""
    if nest.form == "product":
        [store] = nest.stores
        tiles = math.ceil(store.outer.extent / tile.outer) * math.ceil(store.inner.extent / tile.inner)
        return tiles, nest.batch.extent if nest.batch is not None else 1
    return max((math.ceil(store.outer.extent / tile.outer) for store in nest.stores), default=0), 1


class _Emitter:
    def __init__(self, nest: Nest, tile: Tile) -> None:
        self._nest = nest
        self._tile = tile
        everything = walk([term for store in nest.stores for term in (store.value, store.offset)])
        self._uses: dict[Term, int] = {}
        for term in everything:
            for each in term.operands:
                self._uses[each] = self._uses.get(each, 0) + 1
        self._origins = tuple(dict.fromkeys(term.origin for term in everything if term.origin))
        found = {var: None for store in nest.stores for var in (store.outer, store.inner)}
        found |= {
            var: None for term in everything for var in sorted(term.free, key=lambda each: (each.name, each.extent))
        }
        self._vars = [var for var in found if var.extent > 1]
        stems = [var.name for var in self._vars]
        self._names = {
            var: var.name if stems.count(var.name) == 1 else f"{var.name}_{var.extent}" for var in self._vars
        }
        self._looped: set[Var] = set()
        self._count = 0
        self._multiplies = False

    # The module

    def module(self) -> str:
        top = _Scope(None, set())
        for var in self._vars:
            if var.axis == 1 and (self._inner(var) < var.extent or var.name == "ka") and self._nest.form != "product":
                self._looped.add(var)
            elif var.name not in ("ka", "kb"):
                self._declare(top, var)
        for store in self._nest.stores:
            self._store(top, store)
        arguments = ", ".join(parameter.name for parameter in self._nest.parameters)
        head = f'"""{", ".join(self._origins) or "Copy"}."""\n\nimport triton\nimport triton.language as tl\n'
        body = "\n".join(f"    {line}" for line in top.lines) or "    pass"
        return f"{head}{_MULTIPLY if self._multiplies else ''}\n\n@triton.jit\ndef {KERNEL}({arguments}):\n{body}\n"

    def _inner(self, var: Var) -> int:
        """Return how many values of a variable of axis 1 are computed at once."""
        return min(self._tile.inner, 1 << (var.extent - 1).bit_length())

    def _block(self, var: Var) -> int:
        if var.name in ("ka", "kb"):
            return self._tile.depth
        return (
            self._tile.outer
            if var.axis == 0
            else self._tile.inner
            if self._nest.form == "product"
            else self._inner(var)
        )

    def _declare(self, top: _Scope, var: Var) -> None:
        name, block = self._names[var], self._block(var)
        top.known.add(var)
        if var.axis is None:
            top.lines.append(f"{name} = tl.program_id(1)")
            return
        along = "[:, None]" if var.axis == 0 else "[None, :]"
        start = ""
        if self._nest.form == "product":
            across = math.ceil(self._nest.stores[0].outer.extent / self._tile.outer)
            start = f"tl.program_id(0) % {across}" if var.axis == 0 else f"tl.program_id(0) // {across}"
            start = f"({start}) * {block} + "
        elif var.axis == 0:
            start = f"tl.program_id(0) * {block} + "
        top.lines.append(f"{name} = {start}tl.arange(0, {block}){along}")
        self._declare_mask(top, var)

    def _declare_mask(self, scope: _Scope, var: Var) -> None:
        if self._masked(var):
            scope.lines.append(f"{self._names[var]}_in = {self._names[var]} < {var.extent}")

    def _masked(self, var: Var) -> bool:
        return var.axis is not None and (var.extent % self._block(var) != 0 or self._uneven(var))

    def _uneven(self, var: Var) -> bool:
        """Return whether another output has more blocks, so that some programs have no elements of this one."""
        if var.axis != 0 or var.name in ("ka", "kb"):
            return False
        return any(store.outer.extent > var.extent for store in self._nest.stores)

    def _mask(self, free: frozenset[Var]) -> str:
        masks = [f"{self._names[var]}_in" for var in self._vars if var in free and self._masked(var)]
        return " & ".join(masks)

    # Statements

    def _store(self, top: _Scope, store: Store) -> None:
        scope = top
        looped = store.inner in self._looped
        if looped:
            scope = _Scope(top, {store.inner})
        tile = frozenset(var for var in (store.outer, store.inner) if var.extent > 1)
        value = self._text(scope, store.value)
        if store.value.op == "const":
            value = full(store.value)
        if store.value.dtype == "i1":
            value = f"({value}).to(tl.uint8)"
        offset = self._text(scope, store.offset)
        if not tile:
            offset = "tl.full([1, 1], 0, tl.int32)"
        mask = self._mask(tile)
        if store.outer.extent == 1 and self._uneven(store.outer):
            mask = f"{mask} & (tl.program_id(0) == 0)" if mask else "tl.program_id(0) == 0"
        scope.lines.append(f"tl.store({store.parameter} + {offset}, {value}{f', mask={mask}' if mask else ''})")
        if looped:
            self._close(top, scope, store.inner)

    def _close(self, outer: _Scope, loop: _Scope, var: Var, before: str = "") -> None:
        """Emit a loop over a variable of axis 1 after the statements it depends on."""
        name, block = self._names[var], self._block(var)
        body = [f"{name} = {name}_start + tl.arange(0, {block})[None, :]"]
        if self._masked(var):
            body.append(f"{name}_in = {name} < {var.extent}")
        if before:
            outer.lines.append(before)
        outer.lines.append(f"for {name}_start in range(0, {var.extent}, {block}):")
        outer.lines.extend(f"    {line}" for line in (*body, *loop.lines))

    def _text(self, scope: _Scope, term: Term) -> str:
        """Return the expression for a term, after emitting the statements it needs."""
        if term.op == "const":
            return literal(term)
        if term.op == "var":
            assert isinstance(term.data, Var)
            return self._names[term.data]
        named = scope.name_of(term)
        if named is not None:
            return named
        home = scope
        while home.parent is not None and home.parent.knows(term.free):
            home = home.parent
        if term.op == "reduce":
            return self._reduced(home, term)
        if term.op == "dot":
            return self._multiplied(home, term)
        text = self._expression(home, term)
        if self._uses.get(term, 0) <= 1 and home is scope and len(text) < _LONG and term.op in (*INFIX, *CALLS):
            return f"({text})"
        return self._assigned(home, term, text)

    def _assigned(self, scope: _Scope, term: Term, text: str) -> str:
        if term.origin and term.origin != scope.origin:
            scope.lines.append(f"# {term.origin}")
            scope.origin = term.origin
        name = self._next()
        scope.lines.append(f"{name} = {bare(text)}")
        scope.names[term] = name
        return name

    def _next(self) -> str:
        self._count += 1
        return f"t{self._count - 1}"

    def _expression(self, scope: _Scope, term: Term) -> str:
        if term.op == "load":
            [offset] = term.operands
            mask = self._mask(term.free)
            rest = f", mask={mask}, other=0" if mask else ""
            # a tile even of one element: the interpreter cannot combine scalar truth values with tiles
            text = f"tl.load({term.data} + {self._tensor(scope, offset)}{rest})"
            return f"({text} != 0)" if term.dtype == "i1" else text
        if term.op == "cast":
            return f"{self._tensor(scope, term.operands[0])}.to({TRITON_TYPES[term.dtype]})"
        if term.op == "where":
            condition, first, second = term.operands
            plain = term.dtype in ("f32", "i32")
            a = self._text(scope, first) if plain and second.op != "const" else self._tensor(scope, first)
            b = self._text(scope, second) if plain else self._tensor(scope, second)
            return f"tl.where({bare(self._tensor(scope, condition))}, {bare(a)}, {bare(b)})"
        if term.op in INFIX:
            first, second = term.operands
            plain = term.operands[0].dtype != "i1"
            a = self._text(scope, first) if plain and second.op != "const" else self._tensor(scope, first)
            b = self._text(scope, second) if plain else self._tensor(scope, second)
            return f"{a} {INFIX[term.op]} {b}"
        text = self._tensor(scope, term.operands[0])
        return CALLS[term.op].format(bare(text) if CALLS[term.op].startswith("tl.") else text)

    def _tensor(self, scope: _Scope, term: Term) -> str:
        """Return the expression for a term as a tensor; a literal number would have no type of its own."""
        return full(term) if term.op == "const" else self._text(scope, term)

    # Loops

    def _reduced(self, scope: _Scope, term: Term) -> str:
        assert isinstance(term.data, tuple)
        kind, var = term.data
        [body] = term.operands
        looped = var in self._looped
        inside = _Scope(scope, {var}) if looped else scope
        text = self._tile_of(inside, body, var)
        if self._masked(var):
            rest = identity(kind, term.dtype)
            if term.dtype not in ("f32", "i32"):
                rest = f"tl.full([1, 1], {rest}, {TRITON_TYPES[term.dtype]})"
            text = f"tl.where({self._names[var]}_in, {bare(text)}, {rest})"
        if kind == "prod":
            self._multiplies = True
            text = f"tl.reduce({bare(text)}, 1, _multiply)[:, None]"
        else:
            text = f"tl.{kind}({bare(text)}, axis=1)[:, None]"
        if term.dtype in ("i8", "u8"):
            text = f"{text}.to({TRITON_TYPES[term.dtype]})"  # Triton adds up small integers in 32 bits
        if not looped:
            return self._assigned(scope, term, text)
        name = self._next()
        if term.origin and term.origin != scope.origin:
            scope.lines.append(f"# {term.origin}")
            scope.origin = term.origin
        inside.lines.append(f"{name} = {step(kind, name, text)}")
        rows = self._tile.outer if any(each.axis == 0 for each in term.free) else 1
        start = f"{name} = tl.full([{rows}, 1], {identity(kind, term.dtype)}, {TRITON_TYPES[term.dtype]})"
        self._close(scope, inside, var, start)
        scope.names[term] = name
        return name

    def _tile_of(self, scope: _Scope, body: Term, var: Var) -> str:
        """Return a term over the whole tile that is reduced, broadcast if it is constant along the row."""
        text = self._tensor(scope, body)
        rows = self._tile.outer if any(each.axis == 0 for each in body.free) else 1
        return text if var in body.free else f"tl.broadcast_to({bare(text)}, [{rows}, {self._block(var)}])"

    def _multiplied(self, scope: _Scope, term: Term) -> str:
        """Emit a loop over the summed extent that multiplies tiles and accumulates them; return the result's name."""
        assert isinstance(term.data, tuple)
        (along, down), precision = term.data
        rows, columns, depth = self._tile.outer, self._tile.inner, self._tile.depth
        left, right = term.operands
        inside = _Scope(scope, {along, down})
        a = self._factor(inside, left, along, (rows, depth), 0)
        b = self._factor(inside, right, down, (depth, columns), 1)
        name = self._next()
        inside.lines.append(f'{name} = tl.dot({a}, {b}, {name}, input_precision="{precision}")')
        scope.lines.append(f"# {term.origin}")
        scope.lines.append(f"{name} = tl.full([{rows}, {columns}], 0.0, tl.float32)")
        scope.lines.append(f"for k in range(0, {along.extent}, {depth}):")
        body = [f"{self._names[along]} = k + tl.arange(0, {depth})[None, :]"]
        body.append(f"{self._names[down]} = k + tl.arange(0, {depth})[:, None]")
        body += [
            f"{self._names[var]}_in = {self._names[var]} < {var.extent}" for var in (along, down) if self._masked(var)
        ]
        scope.lines.extend(f"    {line}" for line in (*body, *inside.lines))
        for operand, axis, place in ((left, 0, "[None, :]"), (right, 1, "[:, None]")):
            if not any(var.axis == axis for var in operand.free - {along, down}):  # each row, or column, is the same
                scope.lines.append(f"{name} = tl.max({name}, axis={axis}){place}")
        scope.names[term] = name
        return name

    def _factor(self, scope: _Scope, term: Term, inner: Var, shape: tuple[int, int], axis: int) -> str:
        """Return one tile of a product's factor, zero beyond the summed extent."""
        text = bare(self._tensor(scope, term))
        if self._masked(inner) and not (term.op == "load" and inner in term.free):
            zero = f"tl.full([1, 1], 0.0, {TRITON_TYPES[term.dtype]})"
            text = f"tl.where({self._names[inner]}_in, {text}, {zero})"
        whole = inner in term.free and any(var.axis == axis for var in term.free - {inner})
        return text if whole else f"tl.broadcast_to({text}, [{shape[0]}, {shape[1]}])"
