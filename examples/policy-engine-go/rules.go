package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	decisionv1beta1 "policy-engine/generated/ownergraph/decision/v1beta1"
)

const day = 24 * time.Hour

// rules is the policy. The zero value allows everything.
type rules struct {
	denied     []string // Plural names: persistentvolumeclaims, or deployments.apps with the API group.
	maxCascade uint64   // 0: no limit.
	window     window
}

// window is the part of each day, in UTC, in which large cascades may begin. The zero value is never open.
type window struct{ from, to time.Duration }

// revision names the policy. With other rules, the collector asks again about objects that were denied.
func (r rules) revision() string {
	return fmt.Sprintf("deny=%s max-cascade=%d window=%s-%s", strings.Join(r.denied, ","), r.maxCascade, r.window.from, r.window.to)
}

// decide answers one request.
func (r rules) decide(request *decisionv1beta1.StreamVerdictsResponse_Request, now time.Time) *decisionv1beta1.StreamVerdictsRequest_Verdict {
	verdict := &decisionv1beta1.StreamVerdictsRequest_Verdict{
		RequestId: request.RequestId,
		Verdict:   decisionv1beta1.GateVerdict_GATE_VERDICT_ALLOW,
	}
	target, cascade := request.GetTarget(), request.GetCascade()
	qualified := target.GetResource() + "." + target.GetGroup()
	wait := r.window.opensIn(now)
	// A count that is not complete stopped at a limit of the collector, so the cascade is larger.
	large := r.maxCascade > 0 && (cascade.GetObjects() > r.maxCascade || cascade != nil && !cascade.Complete)
	switch {
	case slices.Contains(r.denied, target.GetResource()) || slices.Contains(r.denied, qualified):
		verdict.Verdict, verdict.Policy = decisionv1beta1.GateVerdict_GATE_VERDICT_DENY, "deny-kind"
		verdict.Message = target.GetResource() + " are not deleted"
	case r.maxCascade > 0 && cascade == nil:
		verdict.Verdict, verdict.Policy = decisionv1beta1.GateVerdict_GATE_VERDICT_DENY, "max-cascade"
		verdict.Message = "the request has no cascade: set rootsOnly in the gate"
	case large && wait > 0:
		verdict.Verdict, verdict.Policy = decisionv1beta1.GateVerdict_GATE_VERDICT_HOLD, "max-cascade"
		verdict.Message = fmt.Sprintf("a cascade over more than %d objects waits for the change window", r.maxCascade)
		verdict.AgainAfter = durationpb.New(min(max(wait, time.Second), time.Hour))
	}
	return verdict
}

// opensIn returns the time until the window opens; 0 if it is open.
func (w window) opensIn(now time.Time) time.Duration {
	now = now.UTC()
	at := now.Sub(now.Truncate(day))
	open := w.from <= at && at < w.to
	if w.to < w.from {
		open = at >= w.from || at < w.to
	}
	switch {
	case open:
		return 0
	case w.from > at:
		return w.from - at
	default:
		return w.from + day - at
	}
}

// readWindow reads HH:MM-HH:MM. A window that ends before it begins goes over midnight.
func readWindow(text string) (window, error) {
	from, to, found := strings.Cut(text, "-")
	begin, errBegin := time.Parse("15:04", from)
	end, errEnd := time.Parse("15:04", to)
	if !found || errBegin != nil || errEnd != nil {
		return window{}, errors.New("a window has the form 22:00-04:00")
	}
	if begin.Equal(end) {
		return window{}, errors.New("the window ends when it begins")
	}
	return window{from: begin.Sub(begin.Truncate(day)), to: end.Sub(end.Truncate(day))}, nil
}
