package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Exit codes of the command.
const (
	ExitFailed      = 1   // the server refused, or the run failed
	ExitUsage       = 2   // the command line is wrong
	ExitNotFound    = 3   // the topic or other subject does not exist
	ExitPartial     = 4   // some items failed, others did not
	ExitUnreachable = 5   // no broker could be reached
	ExitTimeout     = 124 // the time given with --timeout ran out
	ExitInterrupted = 130 // the user pressed Ctrl-C
)

// Error is a failure as the user reads it, with the exit code of the process.
type Error struct {
	Code int
	Text string // one sentence: what was tried, what was wrong, what to do
}

func (e *Error) Error() string { return e.Text }

func usagef(format string, args ...any) *Error {
	return &Error{Code: ExitUsage, Text: fmt.Sprintf(format, args...)}
}

// explain turns an error of the client library into a sentence. what says what
// was tried, as in "list topics". A nil error stays nil.
func explain(what string, brokers []string, err error) error {
	var own *Error
	var netErr *net.OpError
	at := strings.Join(brokers, ",")
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.Is(err, context.Canceled):
		return &Error{ExitInterrupted, fmt.Sprintf("cannot %s: interrupted", what)}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Error{ExitUnreachable, fmt.Sprintf("cannot %s: nobody listens at %s; start a node with 'weir start', or name another address with -b HOST:PORT", what, at)}
	case errors.As(err, &netErr) && netErr.Op == "dial":
		return &Error{ExitUnreachable, fmt.Sprintf("cannot %s: cannot reach %s (%v); check the address given with -b", what, at, netErr.Err)}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{ExitTimeout, fmt.Sprintf("cannot %s: no answer from %s in time; is the cluster up? A longer time can be given with --timeout", what, at)}
	}
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return explainCode(what, ke)
	}
	return &Error{ExitFailed, fmt.Sprintf("cannot %s: %v", what, err)}
}

// explainCode words a refusal by the broker, with advice where there is some.
func explainCode(what string, ke *kerr.Error) *Error {
	code, advice := ExitFailed, ""
	switch kerr.TypedErrorForCode(ke.Code) { // ke may have the broker's words for its description
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID:
		code, advice = ExitNotFound, "; see 'weir topic list', or create it with 'weir topic create'"
	case kerr.TopicAlreadyExists:
		advice = "; add --if-not-exists to accept that"
	case kerr.InvalidReplicationFactor:
		advice = "; give a replication factor (-r) that the number of nodes allows, see 'weir cluster info'"
	case kerr.InvalidReplicaAssignment:
		advice = "; see 'weir cluster info' for the nodes there are"
	case kerr.NoReassignmentInProgress:
		advice = "; see 'weir partition status'"
	case kerr.GroupIDNotFound:
		code, advice = ExitNotFound, "; see 'weir group list'"
	case kerr.NonEmptyGroup, kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.GroupSubscribedToTopic:
		advice = "; the group has members: stop them first, see 'weir group members'"
	case kerr.MessageTooLarge:
		advice = "; raise max.message.bytes of the topic, or send smaller records"
	case kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend:
		advice = "; too few replicas are in sync, see 'weir topic describe'"
	}
	return &Error{code, fmt.Sprintf("cannot %s: %s (%s)%s", what, lowerFirst(strings.TrimSuffix(ke.Description, ".")), ke.Message, advice)}
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
