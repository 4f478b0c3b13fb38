# No PersistentVolumeClaim is deleted without an approval. The scope of the gate names the namespaces: those in
# production. data.json has the approved claims: the uid of each, and why.
package ownergraph.claims

review := data.ownergraph.review.of({request.uid: decide(request) | some request in input.requests})

decide(request) := {"allowed": true} if {
	not is_claim(request.object)
}

decide(request) := {"allowed": true, "policy": "claims", "status": {"message": data.approved[request.object.uid]}} if {
	is_claim(request.object)
	is_approved(request.object)
}

decide(request) := {
	"hold": {"againAfterSeconds": 5},
	"policy": "claims",
	"status": {"message": "a PersistentVolumeClaim waits for an approval of its uid"},
} if {
	is_claim(request.object)
	not is_approved(request.object)
}

is_claim(object) if {
	object.group == ""
	object.resource == "persistentvolumeclaims"
}

is_approved(object) if is_string(data.approved[object.uid])
