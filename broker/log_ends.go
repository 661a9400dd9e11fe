package broker

import (
	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// logEnds tells the controller where this node's logs end, for the election of a
// leader among replicas that all may lack records. It answers only once the roles
// follow an Image that is not older than the controller's: until then a replica
// may append for a leader that it does not know to be gone. It waits for nothing.
func (r *reconciler) logEnds(index uint64, tps []fsm.TopicPartition) ([]elect.LogEnd, bool) {
	if r.settled() < index {
		return nil, false
	}
	ends := make([]elect.LogEnd, len(tps))
	for i, tp := range tps {
		ends[i] = elect.LogEnd{Broker: r.env.self, Epoch: batch.NoEpoch}
		if p := r.replicas.Get(tp); p != nil {
			ends[i] = p.logEnd()
		}
	}
	return ends, true
}

// logEnd is where the good part of the log ends.
func (p *Partition) logEnd() elect.LogEnd {
	p.mu.Lock()
	defer p.mu.Unlock()
	return elect.EndOf(p.env.self, p.log, p.damagedLocked())
}
