// Package edgetest provides the parts that the tests of both edges share: traces of requests with the decisions that
// they must get, a model that decides by the formula of nginx's limit_req in exact fractions, and a generator of more
// traces. Both edges replay the same traces under clocks of the tests, which proves that they apply the same policy.
//
// It shares no code with either edge, not even the reader of policies: the generator writes a policy in two forms, one
// for the edges and one for the model.
package edgetest
