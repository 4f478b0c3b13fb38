# A large cascade begins only in the change window. The gate has rootsOnly. data.json has the limit and the window, in
# UTC: on its weekday, from its first hour up to and without its last.
package ownergraph.window

review := data.ownergraph.review.of({request.uid: decide(request) | some request in input.requests})

decide(request) := {"allowed": true} if {
	is_small(request.cascade)
} else := {"allowed": true, "policy": "window"} if {
	request.cascade
	is_open
} else := {
	"hold": {"againAfterSeconds": data.window.askAgainSeconds},
	"policy": "window",
	"status": {"message": sprintf("a cascade over more than %d objects waits for the change window", [data.window.objects])},
} if {
	request.cascade
	not is_open
}

# A count that is not complete stopped at a limit of the collector, so the cascade is larger.
is_small(cascade) if {
	cascade.complete
	cascade.objects <= data.window.objects
}

is_open if {
	now := time.now_ns()
	[hour, _, _] := time.clock(now)
	time.weekday(now) == data.window.weekday
	hour >= data.window.from
	hour < data.window.to
}
