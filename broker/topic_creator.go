package broker

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

const (
	// creatorBurst is how many topics may be asked for at once; creatorRefill is the
	// time after which one more may be. A service that starts with some hundred new
	// topics is served at once, a client that makes up names gets two a second.
	creatorBurst  = 200
	creatorRefill = 500 * time.Millisecond
	// creatorBatch is how many topics one call to the controller has.
	creatorBatch = 20
	// creatorPatience bounds one such call.
	creatorPatience = 30 * time.Second
)

// internalPrefix begins the names of topics that only Kafka itself creates.
const internalPrefix = "__"

// topicCreator creates the topics that clients name in Metadata and that are not
// there (auto.create.topics.enable), and the topic of offsets.
//
// Nobody waits for it: the client is told that the topic is unknown, and asks
// again. A name is created once at a time however often it is asked for, and
// what may be asked for is bounded, since a client can make up any number of
// names in one request.
//
// It has one goroutine, while there is something to create; close ends it.
type topicCreator struct {
	admin topicAdmin
	log   hclog.Logger
	limit *logLimit
	now   func() time.Time

	mu      sync.Mutex
	names   map[string]struct{} // guarded by mu; waiting, or being created
	queue   []string            // guarded by mu; those that wait, in order
	tokens  int                 // guarded by mu
	filled  time.Time           // guarded by mu; when tokens was brought up to date
	cancel  context.CancelFunc  // guarded by mu; nil while nothing is created
	closed  bool                // guarded by mu
	working sync.WaitGroup      // Add is called under mu while not closed
}

func newTopicCreator(admin topicAdmin, now func() time.Time, log hclog.Logger) *topicCreator {
	return &topicCreator{admin: admin, log: log, limit: newLogLimit(now()), now: now, names: make(map[string]struct{}), tokens: creatorBurst, filled: now()}
}

// want has a topic created that does not exist, and returns what to tell the
// client meanwhile: that it is unknown, or that there is too much to create.
// The name has been checked.
func (c *topicCreator) want(name string) error {
	if strings.HasPrefix(name, internalPrefix) {
		return errUnknownPartition
	}
	return c.add(name)
}

// wantOffsets has the topic of offsets created.
func (c *topicCreator) wantOffsets() {
	_ = c.add(offsetsTopic) // if there is too much to create, the next who asks for a coordinator sees to it
}

func (c *topicCreator) add(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, has := c.names[name]; has || c.closed {
		return errUnknownPartition
	}
	if !c.mayLocked() {
		return wire.ThrottlingQuotaExceeded
	}
	c.names[name] = struct{}{}
	c.queue = append(c.queue, name)
	if c.cancel == nil {
		ctx, cancel := context.WithCancel(context.Background())
		c.cancel = cancel
		c.working.Go(func() { c.work(ctx) }) // ends when the queue is empty, or ctx
	}
	return errUnknownPartition
}

// mayLocked takes one token, if there is one.
func (c *topicCreator) mayLocked() bool {
	if n := int(c.now().Sub(c.filled) / creatorRefill); n > 0 {
		c.tokens = min(creatorBurst, c.tokens+n)
		c.filled = c.filled.Add(time.Duration(n) * creatorRefill)
	}
	if c.tokens == 0 || len(c.names) >= creatorBurst {
		return false
	}
	c.tokens--
	return true
}

// work creates what is in the queue, some at a time.
func (c *topicCreator) work(ctx context.Context) {
	for {
		names := c.next()
		if names == nil {
			return
		}
		c.create(ctx, names)
		c.mu.Lock()
		for _, name := range names {
			delete(c.names, name)
		}
		c.mu.Unlock()
	}
}

// next takes names off the queue; nil when there are none or the creator is closed.
func (c *topicCreator) next() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queue), creatorBatch)
	if n == 0 || c.closed {
		c.cancel()
		c.cancel = nil
		return nil
	}
	names := c.queue[:n:n]
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return names
}

// create has topics created with the defaults. What cannot be created is logged,
// and tried again when a client asks again.
func (c *topicCreator) create(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, creatorPatience)
	defer cancel()
	topics := make([]controller.NewTopic, len(names))
	for i, name := range names {
		topics[i] = controller.NewTopic{Name: name, Partitions: -1, RF: -1}
		if name == offsetsTopic {
			topics[i].Partitions = offsetsPartitions
		}
	}
	results, err := c.admin.CreateTopics(ctx, topics)
	if err != nil {
		c.complain("topics", len(names), "first", names[0], "error", err)
		return
	}
	for i, r := range results {
		if r.Err != wire.None && r.Err != wire.TopicAlreadyExists {
			c.complain("topic", names[i], "code", r.Err.Name(), "error", r.Msg)
		}
	}
}

// complain writes one line, or counts it when there are too many.
func (c *topicCreator) complain(args ...any) {
	if skipped, ok := c.limit.allow(c.now()); ok {
		c.log.Warn("cannot create what clients ask for", append(args, "similar_lines_left_out", skipped)...)
	}
}

// close ends what is being created and waits for it.
func (c *topicCreator) close() {
	c.mu.Lock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	c.working.Wait()
}

// autoCreates tells whether a Metadata request may create the topics it names.
func (m *metadata) autoCreates() bool {
	return m.srv.config.AutoCreateTopics && m.req.AllowAutoTopicCreation
}

// missing says why there is no topic of that name, and has one created if the
// request may.
func (m *metadata) missing(name string) error {
	if fsm.CheckTopicName(name) == nil && m.autoCreates() {
		return m.srv.creator.want(name)
	}
	return missingTopic(name)
}
