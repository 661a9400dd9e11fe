package broker

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

// groupJSON is a group as the admin listener shows it: with its flight recorder
// and the reason why it is not stable, which the Kafka protocol has no room for.
type groupJSON struct {
	Group           string            `json:"group"`
	Type            string            `json:"type"`
	State           string            `json:"state"`
	Why             string            `json:"why"`
	Epoch           int32             `json:"epoch"`
	AssignmentEpoch int32             `json:"assignment_epoch"`
	ProtocolType    string            `json:"protocol_type"`
	Protocol        string            `json:"protocol"`
	Leader          string            `json:"leader"`
	EmptySince      *time.Time        `json:"empty_since"`
	Members         []groupMemberJSON `json:"members"`
	History         []transitionJSON  `json:"history"`
}

type groupMemberJSON struct {
	ID       string     `json:"member_id"`
	Instance string     `json:"instance_id"`
	Client   string     `json:"client_id"`
	Host     string     `json:"host"`
	Epoch    int32      `json:"epoch"`
	Waiting  bool       `json:"waiting"`
	Deadline *time.Time `json:"session_ends"`
}

type transitionJSON struct {
	At     time.Time `json:"at"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Epoch  int32     `json:"epoch"`
	Member string    `json:"member_id"`
	Client string    `json:"client_id"`
	Host   string    `json:"host"`
	Cause  string    `json:"cause"`
}

// groupErrorJSON says why a group is not shown, and who has it.
type groupErrorJSON struct {
	Error       string `json:"error"`
	Coordinator int32  `json:"coordinator"`
}

// serveGroups lists the groups that this node coordinates.
func (g *groups) serveGroups(w http.ResponseWriter, _ *http.Request) {
	type row struct {
		Group string `json:"group"`
		Type  string `json:"type"`
		State string `json:"state"`
	}
	list, err := g.list()
	if err != nil {
		writeJSON(w, http.StatusServiceUnavailable, groupErrorJSON{err.Error(), int32(fsm.NoBroker)})
		return
	}
	rows := make([]row, 0, len(list))
	for _, l := range list {
		rows = append(rows, row{l.GroupID, l.GroupType, l.GroupState})
	}
	writeJSON(w, http.StatusOK, rows)
}

// serveGroup shows one group. A node that does not coordinate it names the one that does.
func (g *groups) serveGroup(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("name")
	v, err := g.view(id)
	if err == nil {
		writeJSON(w, http.StatusOK, showGroup(v))
		return
	}
	status := http.StatusMisdirectedRequest
	if errors.Is(err, errUnknownGroup) {
		status = http.StatusNotFound
	}
	writeJSON(w, status, groupErrorJSON{err.Error(), int32(g.image().Slot(fsm.SlotOf(id)).Owner)})
}

func showGroup(v groupView) groupJSON {
	out := groupJSON{
		Group: v.ID, Type: kindName(v.Kind), State: v.State.String(), Why: v.why, Epoch: v.Epoch, AssignmentEpoch: v.AssignmentEpoch,
		ProtocolType: v.ProtocolType, Protocol: v.Protocol, Leader: v.Leader, EmptySince: optionalTime(v.EmptySince),
		Members: []groupMemberJSON{}, History: showHistory(v.history),
	}
	for i := range v.Members {
		m := &v.Members[i]
		out.Members = append(out.Members, groupMemberJSON{
			ID: m.ID, Instance: m.InstanceID, Client: m.ClientID, Host: m.ClientHost, Epoch: memberEpoch(v.Description, m),
			Waiting: m.Waiting, Deadline: optionalTime(m.Deadline),
		})
	}
	return out
}

func showHistory(history []group.Transition) []transitionJSON {
	out := make([]transitionJSON, 0, len(history))
	for _, t := range history {
		out = append(out, transitionJSON{
			At: t.At.UTC(), From: t.From.String(), To: t.To.String(), Epoch: t.Epoch, Member: t.Member, Client: t.ClientID, Host: t.ClientHost, Cause: t.Cause})
	}
	return out
}

// historyBytes is a group's flight recorder for a client that has asked for it.
func historyBytes(history []group.Transition) []byte {
	out, err := json.Marshal(showHistory(history))
	if err != nil {
		panic("BUG: a history cannot be written: " + err.Error())
	}
	return out
}

// memberEpoch is the generation for members of a classic group, which have no epoch of their own.
func memberEpoch(d group.Description, m *group.MemberDescription) int32 {
	if d.Kind == fsm.ClassicGroup {
		return d.Epoch
	}
	return m.Epoch
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(value) // the client went away
}
