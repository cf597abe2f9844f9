// Package edgetest is what the tests of both edges share: traces of requests with the decisions they must get, a
// model that decides by the formula of nginx's limit_req in exact fractions, and a generator of more traces. Both
// edges replay the same traces under clocks of the tests' own, so that they are one policy and not two.
//
// It shares no code with either edge, not even the reader of policies: the generator writes a policy in two forms,
// one for the edges and one for the model.
package edgetest
