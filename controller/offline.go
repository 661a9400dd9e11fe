package controller

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/controller/wal"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage/vfs"
)

// The keys of ours in Raft's stable store that say what Recover did, and which brokers the
// cluster is to give up once this node leads; empty when it has.
const (
	keyRecovered = "WeirRecovered"
	keyGiveUp    = "WeirGiveUp"
)

// Survivor is the metadata of a stopped node whose cluster has lost the majority of its
// controllers for good.
//
// Problem: without a majority nothing can be decided, and what a majority had decided may be
// missing from every log that is left. Raft's rules can not help: somebody has to say that
// the lost nodes will never come back.
//
// Invariants:
//   - Only offline, on a folder that its process has left, and only on the words of an operator.
//   - The step is one new snapshot: before it counts the old configuration holds, after it the
//     new one. A crash in between changes nothing, a repeated run is harmless.
//   - Nothing is taken from metadata with a gap.
//
// Steps: OpenSurvivor replays the newest readable snapshot and the log behind it; Outlook says
// what would become of the cluster; Recover writes the snapshot with the new voters. As the node
// leads for the first time it gives the brokers on lost voters up, before any broker registers:
// else they would be members until their sessions end, while those that are left lose their
// seats as they register. It also repeats the configuration, in the log. Nodes without a vote go
// on from the logs that they have, so that whatever they must know has to be there.
//
// Rejected: a file that is looked at by each start (it is forgotten there), and a node that
// decides by itself after a time without a majority (both halves of a cut network would).
type Survivor struct {
	dir     string
	id      Identity
	log     hclog.Logger
	store   *store
	snaps   *snapshots
	image   *fsm.Image
	servers []raft.Server
	last    uint64 // index of the last entry of the metadata
	term    uint64 // of that entry
	broken  error  // why the store can not be used any more
}

// Outlook is what a cluster would be after Recover.
type Outlook struct {
	Identity Identity
	// Index and Term are where the metadata of this node ends: nodes that are kept may be
	// compared by term, then by index.
	Index, Term uint64
	// Voters are the voters by the present configuration, Kept those that vote from now on, GivenUp
	// the voters that are not among them. Others are nodes without a vote, which stay.
	Voters, Kept, GivenUp, Others []fsm.BrokerID
	// Topics and Partitions is how many there are.
	Topics, Partitions int
	// Complete partitions have a kept node among those that surely hold every committed record,
	// Stale ones have only other replicas there, Lost ones none at all.
	Complete, Stale, Lost int
	// BelowMinISR partitions have fewer replicas on kept nodes than an acknowledgement with
	// acks=all needs.
	BelowMinISR int
}

// HasMetadata tells whether there is metadata in a Raft folder.
func HasMetadata(fsys vfs.FS, raftDir string) (bool, error) { return wal.Exists(fsys, raftDir) }

// OpenSurvivor reads the metadata of a stopped node. The caller holds the lock on its data
// folder. The error says what to do.
func OpenSurvivor(raftDir string, id Identity, log hclog.Logger) (*Survivor, error) {
	if found, err := HasMetadata(vfs.OS(), raftDir); err != nil {
		return nil, fmt.Errorf("look for metadata in %s: %w", raftDir, err)
	} else if !found {
		return nil, fmt.Errorf("there is no metadata in %s: recover a node that has its own, or restore a copy of its folder", raftDir)
	}
	s := &Survivor{dir: raftDir, id: id, log: log}
	if s.log == nil {
		s.log = hclog.NewNullLogger()
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Survivor) open() error {
	var err error
	if s.store, err = openStore(vfs.OS(), s.dir, func(err error) { s.broken = err }); err != nil {
		return fmt.Errorf("%w: stop the node first; if it is stopped, recover another surviving node", err)
	}
	if s.snaps, err = openSnapshots(s.dir, s.log.Named("snapshot")); err != nil {
		return err
	}
	if err := s.checkOwner(); err != nil {
		return err
	}
	return s.replay()
}

// checkOwner makes sure that the log is that of the identity in the data folder.
func (s *Survivor) checkOwner() error {
	n := &Node{cfg: Config{RaftDir: s.dir}, store: s.store}
	f, err := n.storedFormation()
	if err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("the metadata in %s belongs to no cluster: this node never was in one", s.dir)
	}
	if m, ok := f.own(s.id.Folder); !ok || f.clusterID != s.id.ClusterID || m.id != s.id.NodeID {
		return fmt.Errorf("the data folder belongs to node %d of cluster %s, but the metadata in %s was made for cluster %s by another node",
			s.id.NodeID, s.id.ClusterID, s.dir, f.clusterID)
	}
	return nil
}

// replay makes the Image from the newest snapshot that can be read and all entries behind it.
func (s *Survivor) replay() error {
	if err := s.snaps.checkWhole(s.store); err != nil {
		return fmt.Errorf("%w: recover another surviving node instead", err)
	}
	m := newMachine(func(err error) { s.broken = err })
	newest, _, err := s.snaps.readable()
	if err != nil {
		return err
	}
	if newest != nil {
		_, r, err := s.snaps.Open(newest.ID)
		if err == nil {
			err = m.Restore(r)
		}
		if err != nil {
			return fmt.Errorf("read the snapshot %s in %s: %w", newest.ID, s.dir, err)
		}
		s.last, s.term, s.servers = newest.Index, newest.Term, newest.Configuration.Servers
	}
	last, err := s.store.LastIndex()
	if err != nil {
		return err
	}
	if last == 0 && newest == nil {
		return fmt.Errorf("the metadata in %s is empty: this node never was in a cluster that worked; recover another surviving node", s.dir)
	}
	for i := s.last + 1; i <= last; i++ {
		if err := s.replayEntry(m, i); err != nil {
			return err
		}
	}
	if s.broken != nil {
		return fmt.Errorf("read the metadata in %s: %w", s.dir, s.broken)
	}
	s.image = m.Image()
	return nil
}

func (s *Survivor) replayEntry(m *machine, index uint64) error {
	var l raft.Log
	if err := s.store.GetLog(index, &l); err != nil {
		return fmt.Errorf("read entry %d of the metadata in %s: %w: recover another surviving node, or restore a copy of this folder", index, s.dir, err)
	}
	switch l.Type {
	case raft.LogCommand:
		m.Apply(&l)
	case raft.LogConfiguration:
		s.servers = raft.DecodeConfiguration(l.Data).Servers
	}
	s.last, s.term = l.Index, l.Term
	return nil
}

// Outlook says what would become of the cluster if only the kept nodes went on; no ids stand
// for this node alone.
func (s *Survivor) Outlook(keep []fsm.BrokerID) (Outlook, error) {
	kept, err := s.kept(keep)
	if err != nil {
		return Outlook{}, err
	}
	o := Outlook{Identity: s.id, Index: s.last, Term: s.term}
	im := fsm.GiveUp(s.image, s.givenUp(kept)...)
	for _, v := range s.servers {
		id, _, _ := parseServerID(v.ID)
		_, stays := findServer(kept, v.ID)
		if v.Suffrage == raft.Voter {
			o.Voters = append(o.Voters, id)
		}
		switch {
		case stays:
			o.Kept = append(o.Kept, id)
		case v.Suffrage == raft.Voter:
			o.GivenUp = append(o.GivenUp, id)
		default:
			o.Others = append(o.Others, id)
		}
	}
	stays := func(id fsm.BrokerID) bool { return slices.Contains(o.Kept, id) || slices.Contains(o.Others, id) }
	for t := range im.Topics() {
		o.Topics++
		for _, p := range im.Partitions(t.ID) {
			o.add(p, stays)
		}
	}
	return o, nil
}

// add counts one partition.
func (o *Outlook) add(p fsm.Partition, stays func(fsm.BrokerID) bool) {
	o.Partitions++
	count := 0
	for _, id := range p.Replicas {
		if stays(id) {
			count++
		}
	}
	switch {
	case count == 0:
		o.Lost++
	case slices.ContainsFunc(p.ISR, stays) || slices.ContainsFunc(p.ELR, stays):
		o.Complete++
	default:
		o.Stale++
	}
	if count > 0 && count < int(p.MinISR) {
		o.BelowMinISR++
	}
}

// kept returns the servers with these ids, this node among them, as voters. A node that had
// no vote may be kept as well: where all voters are lost, one of those has what is left.
func (s *Survivor) kept(keep []fsm.BrokerID) ([]raft.Server, error) {
	if len(keep) == 0 {
		keep = []fsm.BrokerID{s.id.NodeID}
	}
	var out []raft.Server
	for _, v := range s.servers {
		if id, _, ok := parseServerID(v.ID); ok && slices.Contains(keep, id) {
			v.Suffrage = raft.Voter
			out = append(out, v)
		}
	}
	if _, ok := findServer(out, serverID(s.id.NodeID, s.id.Folder)); !ok {
		return nil, fmt.Errorf("node %d, which this folder belongs to, is not among the nodes to keep, or was not in the cluster any more: keep it, or recover one that is to be kept", s.id.NodeID)
	}
	if len(out) != len(keep) {
		return nil, fmt.Errorf("not all of %v are nodes of the cluster: its voters are %s, and its nodes without a vote %s",
			keep, serverNames(s.servers, raft.Voter), serverNames(s.servers, raft.Nonvoter))
	}
	return out, nil
}

// givenUp are the brokers on voters that do not stay.
func (s *Survivor) givenUp(kept []raft.Server) []fsm.BrokerID {
	var out []fsm.BrokerID
	for _, v := range s.servers {
		id, _, ok := parseServerID(v.ID)
		if _, stays := findServer(kept, v.ID); ok && !stays && v.Suffrage == raft.Voter {
			out = append(out, id)
		}
	}
	return out
}

// remaining is the configuration in which the kept servers vote and those without a vote stay.
func (s *Survivor) remaining(kept []raft.Server) []raft.Server {
	out := slices.Clone(kept)
	for _, v := range s.servers {
		if _, stays := findServer(kept, v.ID); !stays && v.Suffrage != raft.Voter {
			out = append(out, v)
		}
	}
	return out
}

func serverNames(servers []raft.Server, which raft.ServerSuffrage) string {
	var names []string
	for _, v := range servers {
		if id, _, ok := parseServerID(v.ID); ok && v.Suffrage == which {
			names = append(names, fmt.Sprint(id))
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Recover makes the kept nodes the only voters; nodes without a vote stay what they are. What this node's log holds becomes the
// cluster's metadata, also what no majority ever had.
func (s *Survivor) Recover(keep []fsm.BrokerID) error {
	servers, err := s.kept(keep)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("voters %s instead of %s from index %d, term %d, on", serverNames(servers, raft.Voter), serverNames(s.servers, raft.Voter), s.last, s.term)
	if err := s.store.Set([]byte(keyRecovered), []byte(note)); err != nil {
		return fmt.Errorf("note the recovery in %s: %w", s.dir, err)
	}
	if err := s.store.Set([]byte(keyGiveUp), encodeIDs(s.givenUp(servers))); err != nil {
		return fmt.Errorf("note who is given up in %s: %w", s.dir, err)
	}
	m := newMachine(func(err error) { s.broken = err })
	n := &Node{cfg: DefaultConfig(), log: s.log}
	_, transport := raft.NewInmemTransport("")
	defer transport.Close() //nolint:errcheck // it never was connected
	err = raft.RecoverCluster(n.raftConfig(serverID(s.id.NodeID, s.id.Folder), nil), m, s.store, s.store, s.snaps, transport, raft.Configuration{Servers: s.remaining(servers)})
	if err = errors.Join(err, s.broken); err != nil {
		return fmt.Errorf("rewrite the Raft configuration in %s: %w", s.dir, err)
	}
	s.log.Warn("the Raft configuration was rewritten", "now", note)
	return nil
}

// Close releases the files.
func (s *Survivor) Close() error {
	if s.store == nil {
		return nil
	}
	return s.store.close()
}

// sayRecovered logs that this node's configuration was once rewritten.
func (n *Node) sayRecovered() error {
	note, err := n.store.Get([]byte(keyRecovered))
	if errors.Is(err, errKeyNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	n.log.Warn("this cluster was recovered from the loss of its majority on request; nodes that were given up must not start again with their old folders",
		"recovered", string(note))
	return nil
}

// finishRecovery commits what Recover left for the first term of this node.
func (t *term) finishRecovery() error {
	b, err := t.n.store.Get([]byte(keyGiveUp))
	if errors.Is(err, errKeyNotFound) || err == nil && len(b) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	var commands []fsm.Command
	for _, id := range decodeIDs(b) {
		if broker, ok := t.n.Image().Broker(id); ok {
			commands = append(commands, fsm.GiveUpBroker{ID: id, Epoch: broker.Epoch})
		}
	}
	if len(commands) > 0 {
		if _, err := t.commit(commands...); err != nil {
			return err
		}
	}
	again := func([]raft.Server) (serverChange, error) { return addVoter(t.n.serverID()), nil }
	if err := t.n.changeServers(t.ctx, "repeat the configuration of the recovery", again); err != nil {
		return err
	}
	return t.n.store.Set([]byte(keyGiveUp), nil)
}

func encodeIDs(ids []fsm.BrokerID) []byte {
	out := []byte{recoveryVersion}
	for _, id := range ids {
		out = binary.BigEndian.AppendUint32(out, uint32(id))
	}
	return out
}

func decodeIDs(b []byte) []fsm.BrokerID {
	var ids []fsm.BrokerID
	for b = b[1:]; len(b) >= 4; b = b[4:] {
		ids = append(ids, fsm.BrokerID(binary.BigEndian.Uint32(b)))
	}
	return ids
}

// recoveryVersion is the first byte of the list of who is given up.
const recoveryVersion = 1
