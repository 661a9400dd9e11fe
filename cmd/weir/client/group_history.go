package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// tagHistory is the tag by which a node is asked for the history of a group, and in
// which it answers. Other brokers leave both alone.
const tagHistory = 31

// transition is one entry of a group's history: what happened to it, and who was behind it.
type transition struct {
	At     time.Time `json:"at"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Epoch  int32     `json:"epoch"`
	Member string    `json:"member_id"`
	Client string    `json:"client_id"`
	Host   string    `json:"host"`
	Cause  string    `json:"cause"`
}

// groupHistory asks the coordinator of a group that was described for its history:
// itself, since kgo does not hand tags on to where it sends requests about groups. A
// broker that keeps none, or has lost the group meanwhile, tells none.
func groupHistory(ctx context.Context, adm groupClient, d *groupDescription) ([]transition, error) {
	asked := []byte{1}
	coordinator := adm.kgo.Broker(int(d.Coordinator))
	if d.Type == "consumer" {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups = []string{d.Group}
		req.UnknownTags.Set(tagHistory, asked)
		resp, err := req.RequestWith(ctx, coordinator)
		if err != nil || len(resp.Groups) != 1 {
			return nil, err
		}
		return historyOf(&resp.Groups[0].UnknownTags)
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{d.Group}
	req.UnknownTags.Set(tagHistory, asked)
	resp, err := req.RequestWith(ctx, coordinator)
	if err != nil || len(resp.Groups) != 1 {
		return nil, err
	}
	return historyOf(&resp.Groups[0].UnknownTags)
}

// historyOf reads the history from an answer.
func historyOf(tags *kmsg.Tags) (history []transition, err error) {
	tags.Each(func(tag uint32, value []byte) {
		if tag != tagHistory {
			return
		}
		size, n := binary.Uvarint(value) // one more than the bytes that follow
		if n <= 0 || size != uint64(len(value)-n)+1 {
			err = fmt.Errorf("the history of the group cannot be read: %d bytes", len(value))
			return
		}
		if err = json.Unmarshal(value[n:], &history); err != nil {
			err = fmt.Errorf("read the history of the group: %w", err)
		}
	})
	return history, err
}

// historyTable is the history for a terminal, the newest last.
func historyTable(history []transition) *table {
	t := &table{header: []string{"AT", "STATE", "EPOCH", "CLIENT", "HOST", "CAUSE"}, value: history}
	for _, h := range history {
		state := h.To
		if h.From != h.To {
			state = h.From + " → " + h.To
		}
		t.add(h.At.Local().Format("2006-01-02 15:04:05.000"), state, h.Epoch, orDash(h.Client), orDash(h.Host), h.Cause)
	}
	return t
}
