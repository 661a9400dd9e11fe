package broker

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func findRequest(version int16, keyType int8, keys ...string) *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorType = version, keyType
	if version >= coordinatorKeys {
		req.CoordinatorKeys = keys
	} else {
		req.CoordinatorKey = keys[0]
	}
	return req
}

// foundOne is the first answer of any version.
func foundOne(resp *kmsg.FindCoordinatorResponse) kmsg.FindCoordinatorResponseCoordinator {
	if resp.Version >= coordinatorKeys {
		return resp.Coordinators[0]
	}
	return kmsg.FindCoordinatorResponseCoordinator{NodeID: resp.NodeID, Host: resp.Host, Port: resp.Port, ErrorCode: resp.ErrorCode, ErrorMessage: resp.ErrorMessage}
}

func TestFindCoordinator(t *testing.T) {
	ts := newTestServer(t, nil)
	w := ts.dial()
	ts.image.own(otherID)
	for v := int16(0); v <= 6; v++ {
		got := foundOne(w.ask(findRequest(v, wire.CoordinatorGroup, "g")).(*kmsg.FindCoordinatorResponse))
		if got.NodeID != int32(otherID) || got.Host != "host2" || got.Port != 9002 || got.ErrorCode != 0 {
			t.Errorf("version %d: %+v", v, got)
		}
	}
	ts.image.apply(fsm.FenceBroker{ID: otherID, Epoch: ts.image.epochOf(otherID)})
	for v := int16(0); v <= 6; v++ {
		got := foundOne(w.ask(findRequest(v, wire.CoordinatorGroup, "g")).(*kmsg.FindCoordinatorResponse))
		if wire.Code(got.ErrorCode) != wire.CoordinatorNotAvailable || got.NodeID != -1 || got.Port != -1 {
			t.Errorf("version %d, coordinator fenced: %+v", v, got)
		}
	}
	ts.image.own(selfID)
	resp := w.ask(findRequest(4, wire.CoordinatorGroup, "a", "b")).(*kmsg.FindCoordinatorResponse)
	if len(resp.Coordinators) != 2 || resp.Coordinators[1].Key != "b" || resp.Coordinators[1].NodeID != int32(selfID) {
		t.Errorf("two keys: %+v", resp.Coordinators)
	}
}

// There are no coordinators of what is not offered, and no client asks for ever.
func TestFindCoordinatorRefuses(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.image.own(selfID)
	w := ts.dial()
	cases := []struct {
		version int16
		keyType int8
		want    wire.Code
		text    string
	}{
		{1, wire.CoordinatorTransaction, wire.TransactionalIDAuthorizationFailed, "transactions are not supported"},
		{6, wire.CoordinatorTransaction, wire.TransactionalIDAuthorizationFailed, "transactions are not supported"},
		{6, wire.CoordinatorShare, wire.InvalidRequest, "share groups are not supported"},
		{5, wire.CoordinatorShare, wire.InvalidRequest, "no coordinator of type 2"},
		{4, 9, wire.InvalidRequest, "no coordinator of type 9"},
	}
	for _, tc := range cases {
		got := foundOne(w.ask(findRequest(tc.version, tc.keyType, "x")).(*kmsg.FindCoordinatorResponse))
		if code := wire.Code(got.ErrorCode); code != tc.want || code.Retriable() || got.ErrorMessage == nil || !strings.Contains(*got.ErrorMessage, tc.text) {
			t.Errorf("version %d, type %d: %+v", tc.version, tc.keyType, got)
		}
	}
}
