# The answer to a GateReview: one response for each request. A request for which the policy has no decision gets no
# response, and then the failure policy of its gate applies.
package ownergraph.review

of(decisions) := {
	"apiVersion": "ownergraph.dev/v1alpha1",
	"kind": "GateReview",
	"responses": [object.union({"uid": uid}, decision) | some uid, decision in decisions],
}
