package broker

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage/vfs"
)

// Recovery is the data folder of a stopped node whose cluster has lost the majority of its
// controllers for good. It holds the folder's lock until Close.
type Recovery struct {
	lock     io.Closer
	survivor *controller.Survivor
}

// OpenRecovery takes the data folder of a node that does not run. Nothing is changed before
// Recover. The error says what to do.
func OpenRecovery(dataDir string, log hclog.Logger) (*Recovery, error) {
	fsys := vfs.OS()
	m, found, err := readMeta(fsys, dataDir)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("the folder %s holds no node of a cluster (there is no %s): give the data folder of a surviving node", dataDir, metaFile)
	}
	lock, err := fsys.Lock(filepath.Join(dataDir, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("the data folder %s is in use by another process: stop the node first: %w", dataDir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the data folder %s: %w: run this as the user that runs the node", dataDir, err)
	}
	s, err := controller.OpenSurvivor(Config{DataDir: dataDir}.raftDir(), m.identity, log)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Recovery{lock: lock, survivor: s}, nil
}

// Outlook says what would become of the cluster with these nodes as its only controllers; no
// ids stand for this node alone.
func (r *Recovery) Outlook(keep []fsm.BrokerID) (controller.Outlook, error) {
	return r.survivor.Outlook(keep)
}

// Recover makes these nodes the cluster's only controllers.
func (r *Recovery) Recover(keep []fsm.BrokerID) error { return r.survivor.Recover(keep) }

// Close lets the folder go.
func (r *Recovery) Close() error { return errors.Join(r.survivor.Close(), r.lock.Close()) }
