# OPA answers gates and probes. Without this policy, each client that reaches OPA can replace its policies.
package system.authz

default allow := false

allow if {
	input.method == "POST"
	input.path = ["v0", "data", "ownergraph", _, "review"]
}

allow if {
	input.method == "GET"
	input.path == ["health"]
}
