# Nothing is deleted in a frozen namespace. The namespaceSelector of the scope has the label frozen.
package ownergraph.frozen

review := data.ownergraph.review.of({request.uid: decision | some request in input.requests})

decision := {
	"allowed": false,
	"policy": "frozen",
	"status": {"message": "the namespace is frozen"},
}
