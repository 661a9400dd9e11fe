package broker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// coreCall is one call of a core.
type coreCall func(c *group.Group, now time.Time, t group.Ticket) group.Out

// ask calls the core of a group. The answer arrives on the channel; it is
// errUnknownGroup when there is no such group.
func (g *groups) ask(id string, call coreCall) (<-chan groupAnswer, error) {
	t, im, err := g.enter(id)
	if err != nil {
		return nil, err
	}
	defer t.shard.mu.Unlock()
	now := g.now()
	lg := t.find(im, id, now)
	if lg == nil {
		return nil, errUnknownGroup
	}
	return t.call(lg, now, call), nil
}

// askAny is ask that makes the group where there is none.
func (g *groups) askAny(id string, call coreCall) (<-chan groupAnswer, error) {
	t, im, err := g.enter(id)
	if err != nil {
		return nil, err
	}
	defer t.shard.mu.Unlock()
	now := g.now()
	return t.call(t.findOrMake(im, id, now), now, call), nil
}

func (t *tenure) call(lg *liveGroup, now time.Time, call coreCall) <-chan groupAnswer {
	ticket, ch := t.ticket()
	t.do(lg, call(lg.core, now, ticket))
	return ch
}

// answerOf waits for what ask returned.
func answerOf(ctx context.Context, ch <-chan groupAnswer, err error) (group.Answer, error) {
	if err != nil {
		return nil, err
	}
	select {
	case a := <-ch:
		return a.answer, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// checkGroupID refuses ids that no group can have. No string that a request holds
// is too long to be stored: the codec sees to that.
func checkGroupID(id string) error {
	if id == "" {
		return wire.InvalidGroupID
	}
	return nil
}

// present is a nullable string that is empty when null.
func present(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// newMemberID is an id that nobody had before, which begins with a name that its
// owner's operator knows.
func newMemberID(name string) string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	x := hex.EncodeToString(id[:])
	if len(name) > nameMax {
		name = name[:nameMax]
	}
	return fmt.Sprintf("%s-%s-%s-%s-%s-%s", name, x[:8], x[8:12], x[12:16], x[16:20], x[20:])
}

// nameMax is how much is kept of a name that a client gives itself.
const nameMax = 255

// memberClient is how a client introduced itself, and the address that it comes from
// as Kafka writes it. The name is kept with the member, so a long one is cut.
func memberClient(c *Conn, h wire.RequestHeader) (id, host string) {
	id = present(h.ClientID)
	if len(id) > nameMax {
		id = strings.Clone(id[:nameMax]) // the rest is not kept alive
	}
	return id, "/" + c.address.String()
}

// groupCodes are the codes of the cores' outcomes.
var groupCodes = [...]wire.Code{
	group.None:                    wire.None,
	group.CoordinatorNotAvailable: wire.CoordinatorNotAvailable,
	group.NotCoordinator:          wire.NotCoordinator,
	group.IllegalGeneration:       wire.IllegalGeneration,
	group.InconsistentProtocol:    wire.InconsistentGroupProtocol,
	group.UnknownMember:           wire.UnknownMemberID,
	group.InvalidSessionTimeout:   wire.InvalidSessionTimeout,
	group.RebalanceInProgress:     wire.RebalanceInProgress,
	group.InvalidRequest:          wire.InvalidRequest,
	group.NonEmptyGroup:           wire.NonEmptyGroup,
	group.GroupNotFound:           wire.GroupIDNotFound,
	group.MemberIDRequired:        wire.MemberIDRequired,
	group.GroupMaxSizeReached:     wire.GroupMaxSizeReached,
	group.FencedInstance:          wire.FencedInstanceID,
	group.FencedMemberEpoch:       wire.FencedMemberEpoch,
	group.UnreleasedInstance:      wire.UnreleasedInstanceID,
	group.UnsupportedAssignor:     wire.UnsupportedAssignor,
	group.StaleMemberEpoch:        wire.StaleMemberEpoch,
	group.InvalidRegex:            wire.InvalidRegularExpression,
}

// groupError is a core's outcome as an error.
func groupError(c group.Code) error {
	if c == group.None {
		return nil
	}
	return groupCodes[c]
}

// commitError is why a commit was refused in Apply. Versions before 9 know no
// member epochs, and no commit of a member to a group that is not there.
func commitError(version int16, err error) error {
	var why fsm.Refusal
	if !errors.As(err, &why) {
		return err
	}
	switch why {
	case fsm.UnknownMember:
		return wire.UnknownMemberID
	case fsm.IllegalGeneration:
		return wire.IllegalGeneration
	case fsm.FencedInstance:
		return wire.FencedInstanceID
	case fsm.StaleMemberEpoch:
		return commitCode(version, wire.StaleMemberEpoch)
	case fsm.UnknownGroup:
		return commitCode(version, wire.GroupIDNotFound)
	}
	return errNoCoordinator
}

// checkCommit says whether a commit may be proposed, by what the core knows beyond
// the row.
func (t *tenure) checkCommit(im *fsm.Image, o *offsetCommit, now time.Time) error {
	epoch, member, instance := o.req.GenerationIDOrMemberEpoch, o.req.MemberID, present(o.req.GroupInstanceID)
	lg := t.live[o.req.GroupID]
	if lg == nil {
		row, ok := im.Group(o.req.GroupID)
		switch {
		case !ok && epoch >= 0:
			return commitCode(o.version, wire.GroupIDNotFound)
		case !ok, len(row.Members) == 0 && epoch < 0:
			return nil
		}
		lg = t.load(row, now)
	}
	if code := lg.core.CheckCommit(member, instance, epoch); code != group.None {
		return commitCode(o.version, groupCodes[code])
	}
	if o.version < memberEpochs && epoch >= 0 && lg.core.HasEpochs(member) {
		return wire.UnsupportedVersion
	}
	if !lg.core.CommitsOn(member, o.conn) {
		return errLateCommit
	}
	return nil
}

// commitCode is a code of a commit as its version knows it.
func commitCode(version int16, code wire.Code) wire.Code {
	if version < memberEpochs && (code == wire.StaleMemberEpoch || code == wire.GroupIDNotFound) {
		return wire.IllegalGeneration
	}
	return code
}
