"""Sequences, optional values, strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tests.integration.input.odd_models import HEADER, OddModel, floats, made, odd, relu, texts

WEIGHT = floats(4, 4, seed=7)


@odd
def sequence_inside() -> OddModel:
    """Split, mapped, picked from and joined again."""

    def oracle(x: Any) -> dict[str, Any]:
        parts = [np.tanh(part @ WEIGHT) for part in np.split(relu(x), 3)]
        return {"y": np.concatenate(parts[::-1]) * 2, "picked": -parts[1], "length": np.array(3)}

    return made(
        "sequence_inside",
        """inside (float[6,4] x) => (float[6,4] y, float[2,4] picked, int64 length)
        <int64 two = {2}, int64 one = {1}, int64 nought = {0}, int64 last = {-1}> {
          h = Relu(x)
          parts = SplitToSequence<axis = 0>(h, two)
          mapped = SequenceMap(parts) <
            body = each (float[2,4] part) => (float[2,4] result) {
              m = MatMul(part, w)
              result = Tanh(m)
            }>
          length = SequenceLength(mapped)
          middle = SequenceAt(mapped, one)
          picked = Neg(middle)
          first = SequenceAt(mapped, nought)
          third = SequenceAt(mapped, last)
          turned = SequenceConstruct(third, middle, first)
          joined = ConcatFromSequence<axis = 0>(turned)
          y = Add(joined, joined)
        }""",
        oracle,
        {"x": floats(6, 4)},
        w=WEIGHT,
    )


@odd
def sequence_in_and_out() -> OddModel:
    """A sequence goes in, another comes out; how long they are is known when the model runs."""

    def oracle(items: list[Any], x: Any) -> dict[str, Any]:
        first = items[0] @ WEIGHT + x
        out = [*items[1:], relu(first), x]
        return {"out": out, "count": np.array(len(items)), "y": np.tanh(np.concatenate(items).sum(axis=0))}

    return made(
        "sequence_in_and_out",
        """in_and_out (seq(float[2,4]) items, float[2,4] x) => (seq(float[2,4]) out, int64 count, float[4] y)
        <int64 nought = {0}, int64[1] rows = {0}> {
          count = SequenceLength(items)
          first = SequenceAt(items, nought)
          m = MatMul(first, w)
          a = Add(m, x)
          r = Relu(a)
          rest = SequenceErase(items, nought)
          more = SequenceInsert(rest, r)
          out = SequenceInsert(more, x)
          all = ConcatFromSequence<axis = 0>(items)
          sum = ReduceSum<keepdims = 0>(all, rows)
          y = Tanh(sum)
        }""",
        oracle,
        {"items": [floats(2, 4, seed=n) for n in range(3)], "x": floats(2, 4, seed=9)},
        {"items": [floats(2, 4, seed=5)], "x": floats(2, 4, seed=9)},
        w=WEIGHT,
    )


@odd
def sequence_grown_in_a_loop() -> OddModel:
    """A loop carries a sequence that begins empty."""

    def oracle(x: Any, count: Any) -> dict[str, Any]:
        items = [np.exp(-relu(x) * step) for step in range(int(count))]
        return {"items": items, "y": np.concatenate([*items, x]).sum(axis=1)}

    return made(
        "sequence_grown_in_a_loop",
        """grown (float[2,3] x, int64 count) => (seq(float[2,3]) items, float[n] y)
        <bool go = {1}, int64[1] columns = {1}> {
          h = Relu(x)
          none = SequenceEmpty()
          items = Loop(count, go, none) <
            body = turn (int64 i, bool c_in, seq(float[2,3]) s_in) => (bool c_out, seq(float[2,3]) s_out) {
              c_out = Identity(c_in)
              f = Cast<to = 1>(i)
              m = Mul(h, f)
              n = Neg(m)
              e = Exp(n)
              s_out = SequenceInsert(s_in, e)
            }>
          more = SequenceInsert(items, x)
          all = ConcatFromSequence<axis = 0>(more)
          y = ReduceSum<keepdims = 0>(all, columns)
        }""",
        oracle,
        {"x": floats(2, 3), "count": np.array(2)},
        {"x": floats(2, 3), "count": np.array(0)},
    )


@odd
def optional_in() -> OddModel:
    """An input that may be absent."""

    def oracle(x: Any, bias: Any) -> dict[str, Any]:
        h = relu(x @ WEIGHT)
        return {"y": np.tanh(h if bias is None else h + bias), "given": np.array(bias is not None)}

    return made(
        "optional_in",
        """optional_in (float[2,4] x, optional(float[2,4]) bias) => (float[2,4] y, bool given) {
          m = MatMul(x, w)
          h = Relu(m)
          given = OptionalHasElement(bias)
          b = If(given) <
            then_branch = some () => (float[2,4] s) {
              value = OptionalGetElement(bias)
              s = Add(h, value)
            },
            else_branch = none () => (float[2,4] n) { n = Identity(h) }>
          y = Tanh(b)
        }""",
        oracle,
        {"x": floats(2, 4), "bias": floats(2, 4, seed=1)},
        {"x": floats(2, 4), "bias": None},
        w=WEIGHT,
    )


@odd
def optional_out() -> OddModel:
    """An output that is absent or not by the input, and an optional sequence."""

    def oracle(x: Any) -> dict[str, Any]:
        h = relu(x @ WEIGHT)
        return {"maybe": h * 2 if x.sum() > 0 else None, "several": [h, x], "y": np.exp(-h)}

    return made(
        "optional_out",
        """optional_out (float[2,4] x) => (optional(float[2,4]) maybe, optional(seq(float[2,4])) several, float[2,4] y)
        <float zero = {0}> {
          m = MatMul(x, w)
          h = Relu(m)
          total = ReduceSum<keepdims = 0>(x)
          positive = Greater(total, zero)
          maybe = If(positive) <
            then_branch = some () => (optional(float[2,4]) s) {
              d = Add(h, h)
              s = Optional(d)
            },
            else_branch = none () => (optional(float[2,4]) n) { n = Optional<type = float[2,4]>() }>
          both = SequenceConstruct(h, x)
          several = Optional(both)
          k = Neg(h)
          y = Exp(k)
        }""",
        oracle,
        {"x": np.abs(floats(2, 4))},
        {"x": -np.abs(floats(2, 4))},
        w=WEIGHT,
    )


@odd
def strings() -> OddModel:
    """Strings in, inside, and out, and numbers that depend on them."""

    def oracle(words: Any, x: Any) -> dict[str, Any]:
        known = {"red": 0, "green": 1, "blue": 2}
        labels = np.array([known.get(word, -1) for word in words])
        chosen = np.where((words == "red")[:, None], x, np.tanh(x @ WEIGHT))
        return {
            "greeting": np.array([f"{word}, bonjour é" for word in words], dtype=object),
            "kept": texts(*[word.upper() for word in words if word not in ("the", "a")]),
            "y": chosen + labels[:, None].astype(np.float32),
        }

    return made(
        "strings",
        """strings (string[4] words, float[4,4] x) => (string[4] greeting, string[n] kept, float[4,4] y)
        <int64[1] last = {1}> {
          ending = Constant<value_strings = [", bonjour é"]>()
          greeting = StringConcat(words, ending)
          kept = StringNormalizer<case_change_action = "UPPER", stopwords = ["the", "a"], is_case_sensitive = 1>(words)
          labels = ai.onnx.ml.LabelEncoder<keys_strings = ["red", "green", "blue"], values_int64s = [0, 1, 2],
            default_int64 = -1>(words)
          f = Cast<to = 1>(labels)
          columns = Unsqueeze(f, last)
          red = Constant<value_string = "red">()
          equal = Equal(words, red)
          mask = Unsqueeze(equal, last)
          m = MatMul(x, w)
          t = Tanh(m)
          chosen = Where(mask, x, t)
          y = Add(chosen, columns)
        }""",
        oracle,
        {"words": texts("red", "the", "blue", ""), "x": floats(4, 4)},
        {"words": texts("a", "green", "ünïcode", "red"), "x": floats(4, 4, seed=1)},
        w=WEIGHT,
    )


@odd
def counted_words() -> OddModel:
    """Strings to counts to a product: a classifier of texts. No tensor of numbers goes in."""
    vocabulary = ["good", "bad", "fine"]

    def oracle(text: Any) -> dict[str, Any]:
        counts = np.array([[sum(word == known for word in row) for known in vocabulary] for row in text], np.float32)
        scores = counts @ WEIGHT[:3]
        return {"y": np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)}

    model = made(
        "counted_words",
        """counted (string[2,5] text) => (float[2,4] y) {
          counts = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,
            ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_strings = ["good", "bad", "fine"]>(text)
          m = MatMul(counts, w)
          y = Softmax<axis = 1>(m)
        }""",
        oracle,
        {"text": texts("good", "good", "bad", "x", "fine", "bad", "bad", "bad", "fine", "").reshape(2, 5)},
        w=WEIGHT[:3],
        header=HEADER,
    )
    onnx.checker.check_model(model.proto)
    return model


@odd
def strings_in_a_sequence() -> OddModel:
    """Words of a text as a sequence of strings, and a constant tensor of strings."""

    def oracle(words: list[Any], x: Any) -> dict[str, Any]:
        return {
            "joined": np.concatenate([*words, texts("one", "", "three")]),
            "count": np.array(len(words)),
            "y": relu(x) * len(words),
        }

    return made(
        "strings_in_a_sequence",
        """in_a_sequence (seq(string[n]) words, float[3] x) => (string[m] joined, int64 count, float[3] y)
        <string[3] more = {"one", "", "three"}> {
          extended = SequenceInsert(words, more)
          joined = ConcatFromSequence<axis = 0>(extended)
          count = SequenceLength(words)
          f = Cast<to = 1>(count)
          r = Relu(x)
          y = Mul(r, f)
        }""",
        oracle,
        {"words": [texts("a", "b"), texts("ç")], "x": floats(3)},
        {"words": [], "x": floats(3)},
    )
