package broker

import (
	"path/filepath"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// operations is what the admin APIs see of this node.
func (n *Node) operations() *operations {
	cfg := n.cfg
	cfg.NodeID, cfg.Advertise = n.ID(), n.Addr() // as they turned out to be
	return &operations{cluster: n.controller, sync: n.controller.Sync, hosted: n.administered, folder: n.folder, config: cfg}
}

// administered is what the admin handlers see of a replica.
func (n *Node) administered(tp fsm.TopicPartition) administered {
	if p := n.env.reachable(tp); p != nil {
		return p
	}
	return nil
}

// folder tells of the data folder and the logs in it.
func (n *Node) folder() folderState {
	path, err := filepath.Abs(n.dir.Path())
	if err != nil {
		path = n.dir.Path() // the working folder is gone; the name is still right
	}
	f := folderState{path: path, err: n.dir.Offline()}
	f.total, f.usable = n.dir.Space()
	for _, l := range n.dir.Logs() {
		s := logState{topic: l.Topic(), partition: l.Partition(), size: l.Size()}
		if p := n.env.reachable(fsm.TopicPartition{Topic: fsm.TopicID(l.ID()), Partition: l.Partition()}); p != nil {
			s.lag = p.lag()
		}
		f.logs = append(f.logs, s)
	}
	return f
}

// lag is how far a follower's log ends below the high watermark that its leader told.
func (p *Partition) lag() batch.Offset {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follow == nil {
		return 0
	}
	return p.follow.Behind()
}
