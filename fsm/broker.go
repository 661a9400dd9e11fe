package fsm

import (
	"cmp"
	"slices"
)

// Endpoint is where a listener can be reached.
type Endpoint struct {
	Host string
	Port int32
}

// Broker is one registered broker. It never leaves the Image by itself: a
// broker that is away is fenced, and RemoveNode takes it out.
type Broker struct {
	ID       BrokerID
	Epoch    BrokerEpoch // Raft index of the registration
	Folder   [16]byte    // UUID of its data folder
	Process  [16]byte    // nonce of the process that registered
	BootID   string      // the kernel boot it runs under; tells a killed process from a crashed machine
	Client   Endpoint    // advertised to clients
	Peer     Endpoint    // for the other nodes
	Rack     string
	Fenced   bool // out of every ISR and not a candidate for leadership
	Stopping bool // in controlled shutdown: may not enter an ISR or become leader; lasts until the next registration
}

// Eligible reports whether the broker may enter an ISR and lead.
func (b Broker) Eligible() bool { return !b.Fenced && !b.Stopping }

// RegisterBroker starts a new incarnation of a broker. Result.Epoch is its
// broker epoch. The broker begins fenced and out of every ISR. A copy that comes
// late, or again since the answer was lost, deposes nobody: where its process is
// registered already it is answered with the epoch that it has, and where another
// one has registered since it is refused.
type RegisterBroker struct {
	ID     BrokerID
	Folder [16]byte
	// Process is a nonce of the process; no two that ever run have the same.
	Process [16]byte
	BootID  string
	Client  Endpoint
	Peer    Endpoint
	Rack    string
	// PrevCleanEpoch is the broker epoch in the clean-stop file of the folder, 0 when there is none.
	PrevCleanEpoch BrokerEpoch
	// Replaces is the broker epoch that the process found under its id when it sent
	// this, 0 when there was none.
	Replaces BrokerEpoch
	// SessionLive is what the controller found about the session of the one that is
	// replaced. It matters only when the folder differs.
	SessionLive bool
}

// FenceBroker says that the session of one incarnation ended.
type FenceBroker struct {
	ID    BrokerID
	Epoch BrokerEpoch
}

// UnfenceBroker says that one incarnation has caught up with the metadata and
// may serve.
type UnfenceBroker struct {
	ID    BrokerID
	Epoch BrokerEpoch
}

// StopBroker says that one incarnation began its controlled shutdown. It keeps
// its seats until they are handed over by ChangeLeaders; its slots, of which it
// has nothing that others lack, are free at once.
type StopBroker struct {
	ID    BrokerID
	Epoch BrokerEpoch
}

func (c RegisterBroker) apply(e *edit) Result {
	if c.ID < 1 || c.Folder == ([16]byte{}) || c.Process == ([16]byte{}) {
		return refused(BadCommand)
	}
	epoch := BrokerEpoch(e.next.index)
	cur, known := e.next.Broker(c.ID)
	switch {
	case known && cur.Process == c.Process && cur.Folder == c.Folder:
		return Result{Epoch: int64(cur.Epoch)}
	case e.next.mayServe(c.ID, c.Folder) != 0:
		return refused(e.next.mayServe(c.ID, c.Folder))
	case c.Replaces != cur.Epoch:
		return refused(StaleBrokerEpoch)
	case known && cur.Epoch >= epoch:
		return refused(StaleBrokerEpoch) // two registrations in one Raft entry: the first holds the epoch
	case known && cur.Folder != c.Folder && c.SessionLive:
		return refused(FolderInUse)
	}
	if known {
		e.evict(c.ID, c.departure(cur))
		e.freeSlots(c.ID)
	}
	e.setBroker(Broker{
		ID: c.ID, Epoch: epoch, Folder: c.Folder, Process: c.Process, BootID: c.BootID,
		Client: c.Client, Peer: c.Peer, Rack: c.Rack, Fenced: true,
	})
	return Result{Epoch: int64(epoch)}
}

// departure tells what the new incarnation may lack of what cur had acknowledged. A
// killed process loses nothing that the kernel holds, so only a folder that is
// another, or a boot that is another and was not preceded by a clean stop, costs
// the seats.
func (c RegisterBroker) departure(cur Broker) departure {
	if c.Folder != cur.Folder {
		return leftEmpty
	}
	sameBoot := c.BootID != "" && c.BootID == cur.BootID
	if !sameBoot && c.PrevCleanEpoch != cur.Epoch {
		return leftTorn
	}
	return leftWhole
}

func (c FenceBroker) apply(e *edit) Result {
	b, no := e.incarnation(c.ID, c.Epoch)
	if no != 0 {
		return refused(no)
	}
	if b.Fenced {
		return Result{}
	}
	e.evict(c.ID, leftWhole)
	e.freeSlots(c.ID)
	b.Fenced = true
	e.setBroker(b)
	return Result{}
}

func (c UnfenceBroker) apply(e *edit) Result {
	b, no := e.incarnation(c.ID, c.Epoch)
	switch {
	case no != 0:
		return refused(no)
	case b.Stopping:
		return refused(BrokerStopping)
	case !b.Fenced:
		return Result{}
	}
	b.Fenced = false
	e.setBroker(b)
	return Result{}
}

func (c StopBroker) apply(e *edit) Result {
	b, no := e.incarnation(c.ID, c.Epoch)
	if no != 0 {
		return refused(no)
	}
	if b.Stopping {
		return Result{}
	}
	b.Stopping = true
	e.freeSlots(c.ID)
	e.setBroker(b)
	return Result{}
}

// incarnation returns the broker if it is registered at that epoch.
func (e *edit) incarnation(id BrokerID, epoch BrokerEpoch) (Broker, Refusal) {
	b, ok := e.next.Broker(id)
	switch {
	case !ok:
		return Broker{}, UnknownBroker
	case b.Epoch != epoch:
		return Broker{}, StaleBrokerEpoch
	}
	return b, 0
}

// setBroker stores b in a fresh copy of the list.
func (e *edit) setBroker(b Broker) {
	i, known := findBroker(e.next.brokers, b.ID)
	e.next.brokers = put(e, e.next.brokers, i, known, b, hashBroker)
}

// put returns a copy of an ordered list of rows with a row at its place, which is taken when
// it is known, and keeps the hash.
func put[T any](e *edit, list []T, i int, known bool, row T, hash func(T) uint64) []T {
	list = slices.Clone(list)
	if known {
		e.next.hash -= hash(list[i])
		list[i] = row
	} else {
		list = slices.Insert(list, i, row)
	}
	e.next.hash += hash(row)
	return list
}

// evict takes broker id out of every ISR (and, unless it left whole, out of every
// ELR) and leaves what it led without a leader. Each partition that the broker
// holds is touched once, in order of key.
func (e *edit) evict(id BrokerID, how departure) {
	for b := range e.next.blocksOf(id) {
		for i := range b.rows {
			if !b.seated(i, id, how) {
				continue
			}
			p := b.partition(i)
			if next, changed := p.without(id, how.from(p)); changed {
				e.setPartition(b.key.at(i), next)
			}
		}
	}
}

// findBroker is the place of id in a list ordered by id.
func findBroker(list []Broker, id BrokerID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(b Broker, id BrokerID) int { return cmp.Compare(b.ID, id) })
}
