package broker

import (
	"context"
	"slices"
	"strconv"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
)

// topicDefaults gives topics that are created here the defaults that are settings
// of this node and not of the cluster.
type topicDefaults struct {
	*controller.Node
	minInSync int16 // 0 leaves it to the cluster: a majority
}

// CreateTopics implements topicAdmin.
func (d topicDefaults) CreateTopics(ctx context.Context, topics []controller.NewTopic) ([]controller.TopicResult, error) {
	if d.minInSync > 0 {
		topics = slices.Clone(topics)
		for i := range topics {
			topics[i].Configs = withMinInSync(topics[i].Configs, d.minInSync)
		}
	}
	return d.Node.CreateTopics(ctx, topics)
}

func withMinInSync(configs [][2]string, least int16) [][2]string {
	for _, c := range configs {
		if c[0] == fsm.MinInsyncReplicas {
			return configs
		}
	}
	return append(slices.Clone(configs), [2]string{fsm.MinInsyncReplicas, strconv.Itoa(int(least))})
}
