"""Tables of rewrite rules: order, conditions and counts."""

from graphpass.analysis.pattern import op, var
from graphpass.analysis.rules import RewriteRule, rewrite
from graphpass.testing import parse_model

TEXT = """%x = Parameter : f32[4]
%a = Relu(%x) : f32[4]
%b = Relu(%a) : f32[4]
%y = Tanh(%b) : f32[4]
Result(%y) {name=y}"""


def rewritten(*rules):
    model = parse_model(TEXT)
    rewriter = model.rewriter()
    counts = rewrite(rewriter, rules)
    rewriter.finish()
    return [node.op for node in model.graph.nodes], counts


def to(name):
    return lambda write, match: write.op(name, match["x"])


def test_all_matches_are_replaced_and_counted():
    kinds, counts = rewritten(RewriteRule("relus", op.Relu(var("x")), to("Abs")))
    assert kinds == ["Parameter", "Abs", "Abs", "Tanh", "Result"]
    assert counts == {"relus": 2}


def test_conditions_see_the_graph_before_the_first_replacement():
    seen = []

    def fits(graph, match):
        seen.append([node.op for node in graph.nodes].count("Relu"))
        return match.node.name == "b"

    kinds, counts = rewritten(RewriteRule("relus", op.Relu(var("x")), to("Abs"), fits))
    assert (kinds.count("Relu"), kinds.count("Abs"), counts) == (1, 1, {"relus": 1})
    assert seen == [2, 2]


def test_rules_do_not_match_what_others_wrote_and_share_a_statistic():
    kinds, counts = rewritten(
        RewriteRule("all", op.Tanh(var("x")), to("Relu")), RewriteRule("all", op.Relu(var("x")), to("Abs"))
    )
    assert kinds == ["Parameter", "Abs", "Abs", "Relu", "Result"]
    assert counts == {"all": 3}


def test_nothing_found_counts_nothing():
    assert rewritten(RewriteRule("exps", op.Exp(var("x")), to("Abs")))[1] == {}
