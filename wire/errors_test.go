package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// namedApart lists codes whose name Kafka has changed since the oracle's.
var namedApart = map[Code]string{NotLeaderOrFollower: "NOT_LEADER_OR_FOLLOWER"}

// retriedApart lists codes that the oracle and Kafka's own exception classes judge
// differently. Ours is Kafka's judgement.
var retriedApart = map[Code]bool{BrokerNotAvailable: false, ConcurrentTransactions: true, ShareSessionNotFound: true, InvalidShareSessionEpoch: true}

func TestCodes(t *testing.T) {
	for c := UnknownServerError; int(c) < len(codes); c++ {
		if c == None {
			continue
		}
		var theirs *kerr.Error
		if !errors.As(kerr.ErrorForCode(int16(c)), &theirs) || theirs.Code != int16(c) {
			t.Errorf("the oracle does not know code %d (%s)", c, c.Name())
			continue
		}
		name := theirs.Message
		if n, ok := namedApart[c]; ok {
			name = n
		}
		if c.Name() != name {
			t.Errorf("code %d is %s, the oracle calls it %s", c, c.Name(), name)
		}
		retriable := theirs.Retriable
		if r, ok := retriedApart[c]; ok {
			if r == retriable {
				t.Errorf("%s: the oracle agrees by now", c.Name())
			}
			retriable = r
		}
		if c.Retriable() != retriable {
			t.Errorf("%s: retriable %v, want %v", c.Name(), c.Retriable(), retriable)
		}
		if c.Message() == "" || c.Error() != c.Name()+": "+c.Message() {
			t.Errorf("code %d reads %q", c, c.Error())
		}
	}
	if last := Code(len(codes)); kerr.TypedErrorForCode(int16(last)) != nil && kerr.TypedErrorForCode(int16(last)) != kerr.UnknownServerError {
		t.Errorf("the oracle knows code %d, which is past our table", last)
	}
}

func TestCodesAreDistinct(t *testing.T) {
	var names []string
	for _, row := range codes {
		if slices.Contains(names, row.name) || row.name != strings.ToUpper(row.name) || row.message == "" {
			t.Errorf("row %+v", row)
		}
		names = append(names, row.name)
	}
}

func TestUnknownCodes(t *testing.T) {
	for _, c := range []Code{-2, -1, Code(len(codes)), 32767, -32768} {
		if c.Name() != "UNKNOWN_SERVER_ERROR" || c.Retriable() {
			t.Errorf("code %d is %s", c, c.Name())
		}
	}
}

func TestCodeAsError(t *testing.T) {
	if None.Err() != nil {
		t.Error("None is an error")
	}
	err := fmt.Errorf("append: %w", NotLeaderOrFollower.Err())
	var c Code
	if !errors.As(err, &c) || c != NotLeaderOrFollower || !errors.Is(err, NotLeaderOrFollower) {
		t.Errorf("%v does not give its code", err)
	}
}
