package main

import (
	"testing"
	"time"

	decisionv1beta1 "policy-engine/generated/ownergraph/decision/v1beta1"
	typev1beta1 "policy-engine/generated/ownergraph/type/v1beta1"
)

func at(clock string) time.Time {
	now, err := time.Parse("15:04", clock)
	if err != nil {
		panic(err)
	}
	return now
}

func request(resource, group string, objects uint64, complete bool) *decisionv1beta1.StreamVerdictsResponse_Request {
	return &decisionv1beta1.StreamVerdictsResponse_Request{
		RequestId: 7,
		Target:    &typev1beta1.ObjectRef{Resource: resource, Group: group},
		Cascade:   &decisionv1beta1.StreamVerdictsResponse_Cascade{Objects: objects, Complete: complete},
	}
}

func TestTheRules(t *testing.T) {
	night, err := readWindow("22:00-04:00")
	if err != nil {
		t.Fatal(err)
	}
	policy := rules{denied: []string{"persistentvolumeclaims", "deployments.apps"}, maxCascade: 500, window: night}
	alone := request("pods", "", 1, true)
	alone.Cascade = nil
	for name, one := range map[string]struct {
		request *decisionv1beta1.StreamVerdictsResponse_Request
		clock   string
		verdict decisionv1beta1.GateVerdict
		again   time.Duration
	}{
		"a denied kind":                 {request("persistentvolumeclaims", "", 1, true), "23:00", decisionv1beta1.GateVerdict_GATE_VERDICT_DENY, 0},
		"a denied kind with its group":  {request("deployments", "apps", 1, true), "23:00", decisionv1beta1.GateVerdict_GATE_VERDICT_DENY, 0},
		"the same kind of other groups": {request("deployments", "example.com", 1, true), "12:00", decisionv1beta1.GateVerdict_GATE_VERDICT_ALLOW, 0},
		"a cascade at the limit":        {request("jobs", "batch", 500, true), "12:00", decisionv1beta1.GateVerdict_GATE_VERDICT_ALLOW, 0},
		"a large cascade":               {request("jobs", "batch", 501, true), "12:00", decisionv1beta1.GateVerdict_GATE_VERDICT_HOLD, time.Hour},
		"a cascade that was not counted": {request("jobs", "batch", 3, false), "21:59", decisionv1beta1.GateVerdict_GATE_VERDICT_HOLD,
			time.Minute},
		"a large cascade in the window":     {request("jobs", "batch", 501, true), "22:00", decisionv1beta1.GateVerdict_GATE_VERDICT_ALLOW, 0},
		"a large cascade after midnight":    {request("jobs", "batch", 501, true), "03:59", decisionv1beta1.GateVerdict_GATE_VERDICT_ALLOW, 0},
		"a large cascade after the window":  {request("jobs", "batch", 501, true), "04:00", decisionv1beta1.GateVerdict_GATE_VERDICT_HOLD, time.Hour},
		"a request of a gate for any items": {alone, "12:00", decisionv1beta1.GateVerdict_GATE_VERDICT_DENY, 0},
	} {
		verdict := policy.decide(one.request, at(one.clock))
		if verdict.Verdict != one.verdict || verdict.GetAgainAfter().AsDuration() != one.again || verdict.RequestId != 7 {
			t.Errorf("%s at %s: %v", name, one.clock, verdict)
		}
	}
}

func TestWindowsThatAreRefused(t *testing.T) {
	for _, text := range []string{"", "22:00", "22:00-24:00", "9-17", "22:00-22:00", "22:00-04:00-05:00"} {
		if window, err := readWindow(text); err == nil {
			t.Errorf("%q is taken as %v", text, window)
		}
	}
}
