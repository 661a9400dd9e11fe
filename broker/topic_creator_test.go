package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/wire"
)

// names are what the admin was asked to create, sorted.
func (a *fakeAdmin) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, t := range a.created {
		out = append(out, t.Name)
	}
	slices.Sort(out)
	return out
}

// idle waits until the creator has nothing left to do.
func (c *topicCreator) idle(t *testing.T) {
	t.Helper()
	eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.names) == 0 && c.cancel == nil
	})
}

func codes(resp *kmsg.MetadataResponse) string {
	var out []string
	for _, t := range resp.Topics {
		out = append(out, fmt.Sprint(t.ErrorCode))
	}
	return strings.Join(out, " ")
}

// Metadata creates what it is asked for by name and does not find, where broker
// and request allow it.
func TestMetadataCreates(t *testing.T) {
	for v := int16(0); v <= 13; v++ {
		for _, tt := range []struct {
			name           string
			broker, client bool
			want           bool
		}{
			{"allowed", true, true, true},
			{"the request forbids it", true, false, v < 4}, // which has no place to say so
			{"the broker forbids it", false, true, false},
		} {
			ts := newTestServer(t, func(c *serverConfig) { c.AutoCreateTopics = tt.broker })
			ts.topic("there", nil, selfID)
			r := metadataRequest(v, "there", "new", "bad name", "__internal", "new")
			r.AllowAutoTopicCreation = tt.client
			if got := codes(ts.dial().ask(r).(*kmsg.MetadataResponse)); got != "0 3 17 3" {
				t.Errorf("version %d, %s: codes %s", v, tt.name, got)
			}
			ts.srv.creator.idle(t)
			var want []string
			if tt.want {
				want = []string{"new"}
			}
			if got := ts.admin.names(); !slices.Equal(got, want) {
				t.Errorf("version %d, %s: created %q, want %q", v, tt.name, got, want)
			}
			if tt.want && (ts.admin.created[0].Partitions != -1 || ts.admin.created[0].RF != -1) {
				t.Errorf("version %d: created %+v, want the defaults", v, ts.admin.created[0])
			}
		}
	}
}

// A request for all topics, for none, or by id creates nothing.
func TestMetadataCreatesOnlyByName(t *testing.T) {
	ts := newTestServer(t, nil)
	w := ts.dial()
	for _, topics := range [][]kmsg.MetadataRequestTopic{nil, {}, {{TopicID: [16]byte{7}}}} {
		r := metadataRequest(12)
		r.Topics, r.AllowAutoTopicCreation = topics, true
		w.ask(r)
	}
	ts.srv.creator.idle(t)
	if got := ts.admin.names(); len(got) != 0 {
		t.Errorf("created %q", got)
	}
}

// Hostile: as many names as fit a request, twice. A burst is created, the rest is
// told that there is too much, and nothing is kept of them.
func TestMetadataCreatesNoFlood(t *testing.T) {
	ts := newTestServer(t, nil)
	var names []string
	for i := range 50_000 {
		names = append(names, fmt.Sprintf("topic-%d", i))
	}
	r := metadataRequest(12, names...)
	r.AllowAutoTopicCreation = true
	began := time.Now()
	for range 2 {
		count := map[int16]int{}
		for _, topic := range ts.dial().ask(r).(*kmsg.MetadataResponse).Topics {
			count[topic.ErrorCode]++
		}
		if count[3]+count[int16(wire.ThrottlingQuotaExceeded)] != len(names) || count[3] > 2*creatorBurst {
			t.Errorf("codes %v", count)
		}
	}
	ts.srv.creator.idle(t)
	more := int(time.Since(began)/creatorRefill) + 1
	if got := len(ts.admin.names()); got < creatorBurst || got > creatorBurst+more {
		t.Errorf("%d topics were created, want %d and at most %d more", got, creatorBurst, more)
	}
	// What exists is answered as ever.
	ts.topic("there", nil, selfID)
	if got := codes(ts.dial().ask(metadataRequest(12, "there")).(*kmsg.MetadataResponse)); got != "0" {
		t.Errorf("codes %s", got)
	}
}

// testCreator is a creator with a clock of the test's own.
func testCreator(t *testing.T, admin *fakeAdmin) (*topicCreator, *time.Time, *lockedBuffer) {
	now, logs := time.Unix(1000, 0), &lockedBuffer{}
	c := newTopicCreator(admin, func() time.Time { return now }, hclog.New(&hclog.LoggerOptions{Output: logs}))
	t.Cleanup(c.close)
	return c, &now, logs
}

func TestTopicCreatorRate(t *testing.T) {
	admin := &fakeAdmin{}
	c, now, _ := testCreator(t, admin)
	want := func(name string, code wire.Code) {
		t.Helper()
		if got, _ := codeOf(c.want(name)); got != code {
			t.Errorf("%s: %v, want %v", name, got, code)
		}
	}
	for i := range creatorBurst {
		want(fmt.Sprint("a", i), wire.UnknownTopicOrPartition)
	}
	c.idle(t)
	want("b", wire.ThrottlingQuotaExceeded)
	*now = now.Add(creatorRefill)
	want("b", wire.UnknownTopicOrPartition)
	want("c", wire.ThrottlingQuotaExceeded)
	c.idle(t)
	if got := len(admin.names()); got != creatorBurst+1 {
		t.Errorf("%d topics were created", got)
	}
	*now = now.Add(time.Hour)
	for i := range creatorBurst + 1 {
		if i < creatorBurst {
			want(fmt.Sprint("d", i), wire.UnknownTopicOrPartition)
		}
	}
	c.idle(t)
	want("e", wire.ThrottlingQuotaExceeded)
}

// A name that is being created is not asked for again, and a creator that is
// closed while it waits for the controller ends.
func TestTopicCreatorBusy(t *testing.T) {
	admin := &fakeAdmin{block: true}
	c, _, _ := testCreator(t, admin)
	for range 100 {
		_ = c.want("a")
		_ = c.want("b")
	}
	c.mu.Lock()
	names, tokens := len(c.names), c.tokens
	c.mu.Unlock()
	if names != 2 || tokens != creatorBurst-2 {
		t.Errorf("%d names, %d tokens are left", names, tokens)
	}
	c.close()
	if err := c.want("c"); !errors.Is(err, errUnknownPartition) {
		t.Errorf("after close: %v", err)
	}
}

// What fails is logged, not for ever, and may be asked for again.
func TestTopicCreatorFails(t *testing.T) {
	admin := &fakeAdmin{answer: controller.TopicResult{Outcome: controller.Outcome{Err: wire.NotEnoughReplicas, Msg: "too few brokers"}}}
	c, _, logs := testCreator(t, admin)
	for range 100 {
		_ = c.want("a")
		c.idle(t)
	}
	if got := len(admin.names()); got != 100 {
		t.Errorf("tried %d times, want 100", got)
	}
	if got := strings.Count(logs.String(), "too few brokers"); got != logBurst {
		t.Errorf("%d lines in the log, want %d", got, logBurst)
	}
	admin.mu.Lock()
	admin.answer, admin.err = controller.TopicResult{}, controller.ErrNoController
	admin.mu.Unlock()
	_ = c.want("b")
	c.idle(t)
}

// A producer that may create topics writes to one that is not there.
func TestProducerCreatesTopic(t *testing.T) {
	c := newCluster(t, 3, func(_ int, cfg *Config) { cfg.NumPartitions = 4 })
	cl := c.client(kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(100))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "made", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	topic, ok := c.any().controller.Image().TopicByName("made")
	if !ok || topic.Partitions != 4 {
		t.Errorf("topic %+v", topic)
	}
	strict := c.client(kgo.UnknownTopicRetries(1))
	if err := strict.ProduceSync(t.Context(), &kgo.Record{Topic: "other", Value: []byte("v")}).FirstErr(); err == nil {
		t.Error("a client that may not create topics did")
	}
}

func TestAutoCreateKey(t *testing.T) {
	c := DefaultConfig()
	if !c.AutoCreateTopics {
		t.Error("the default is not true")
	}
	for value, want := range map[string]bool{"false": false, " TRUE ": true, "False": false} {
		if err := c.Set("auto.create.topics.enable", value); err != nil || c.AutoCreateTopics != want {
			t.Errorf("%q: %v, error %v", value, c.AutoCreateTopics, err)
		}
	}
	if err := c.Set("auto.create.topics.enable", "yes"); err == nil {
		t.Error("yes was accepted")
	}
}
