package chaos

import (
	"context"
	"math/rand/v2"

	"github.com/weirmq/weir/integration/chaos/work"
)

// churner is the topic that is deleted and made again, with the producer of its present
// incarnation. A producer is crashed before its incarnation goes.
type churner struct {
	run         *Run
	topic       *work.Topic
	incarnation int
	crew        *work.Crew
	stop        context.CancelFunc
}

// begin makes the next incarnation and sets a producer to it.
func (c *churner) begin(ctx context.Context) error {
	r := c.run
	c.incarnation++
	c.topic = r.book.Topic("churn", 2, c.incarnation)
	if err := r.crew.CreateTopic(ctx, c.topic, replicas(r.options.Nodes), r.configs); err != nil {
		return err
	}
	crew, err := work.NewCrew(r.book, r.cluster.Brokers, 0)
	if err != nil {
		return err
	}
	c.crew = crew
	var working context.Context
	working, c.stop = context.WithCancel(context.Background())
	crew.Produce(working, rand.New(rand.NewPCG(r.options.Seed, uint64(c.incarnation))).Uint64(), work.Producing{Workload: "churn", Topic: c.topic, Rate: 20, Small: 200, Recreated: true})
	for i, t := range r.topics {
		if t.Name == c.topic.Name {
			r.topics[i] = c.topic
			return nil
		}
	}
	r.topics = append(r.topics, c.topic)
	return nil
}

// end crashes the producer of the present incarnation.
func (c *churner) end() {
	if c.crew == nil {
		return
	}
	c.stop()
	c.crew.Close()
	c.crew = nil
}
