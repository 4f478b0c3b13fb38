package ownergraph.policy_test

claim := {"uid": "1", "object": {"group": "", "resource": "persistentvolumeclaims", "uid": "a"}}

pod := {"uid": "2", "object": {"group": "", "resource": "pods", "uid": "b"}}

window := {"objects": 500, "weekday": "Tuesday", "from": 22, "to": 24, "askAgainSeconds": 60}

tuesday(clock) := time.parse_rfc3339_ns(sprintf("2026-11-24T%sZ", [clock]))

ask(cascade) := {"requests": [{"uid": "3", "cascade": cascade}]}

response(review) := review.responses[0]

test_each_request_has_a_response_in_a_gate_review if {
	review := data.ownergraph.claims.review with input as {"requests": [claim, pod]} with data.approved as {}
	review.apiVersion == "ownergraph.dev/v1alpha1"
	review.kind == "GateReview"
	{response.uid | some response in review.responses} == {"1", "2"}
}

test_a_claim_waits_for_its_approval if {
	review := data.ownergraph.claims.review with input as {"requests": [claim]} with data.approved as {"b": "CHG-1"}
	response(review).hold.againAfterSeconds == 5
	not response(review).allowed
}

test_an_approved_claim_goes if {
	review := data.ownergraph.claims.review with input as {"requests": [claim]} with data.approved as {"a": "CHG-1"}
	response(review).allowed
	response(review).status.message == "CHG-1"
}

test_another_object_goes if {
	review := data.ownergraph.claims.review with input as {"requests": [pod]} with data.approved as {}
	response(review) == {"uid": "2", "allowed": true}
}

test_a_cascade_at_the_limit_goes_at_any_time if {
	review := data.ownergraph.window.review with input as ask({"objects": 500, "complete": true})
		with data.window as window
		with time.now_ns as tuesday("12:00:00")
	response(review).allowed
}

test_a_large_cascade_waits_before_the_window if {
	review := data.ownergraph.window.review with input as ask({"objects": 501, "complete": true})
		with data.window as window
		with time.now_ns as tuesday("21:59:59")
	response(review).hold.againAfterSeconds == 60
	contains(response(review).status.message, "500")
}

test_a_cascade_that_was_not_counted_to_its_end_waits if {
	review := data.ownergraph.window.review with input as ask({"objects": 3, "complete": false})
		with data.window as window
		with time.now_ns as tuesday("12:00:00")
	response(review).hold
}

test_a_large_cascade_goes_in_the_window if {
	review := data.ownergraph.window.review with input as ask({"objects": 501, "complete": true})
		with data.window as window
		with time.now_ns as tuesday("22:00:00")
	response(review).allowed
}

test_a_large_cascade_waits_on_another_day if {
	review := data.ownergraph.window.review with input as ask({"objects": 501, "complete": true})
		with data.window as window
		with time.now_ns as tuesday("22:00:00") + (((24 * 60) * 60) * 1000000000)
	response(review).hold
}

test_a_request_without_a_cascade_has_no_response if {
	review := data.ownergraph.window.review with input as {"requests": [pod]} with data.window as window
	review.responses == []
}

test_nothing_goes_in_a_frozen_namespace if {
	review := data.ownergraph.frozen.review with input as {"requests": [claim, pod]}
	every response in review.responses { response.allowed == false }
	count(review.responses) == 2
}

test_clients_may_ask_and_may_not_change_policies if {
	asks := {"method": "POST", "path": ["v0", "data", "ownergraph", "claims", "review"]}
	data.system.authz.allow with input as asks
	not data.system.authz.allow with input as {"method": "PUT", "path": ["v1", "policies", "claims"]}
	not data.system.authz.allow with input as {"method": "PATCH", "path": ["v1", "data", "approved"]}
}
