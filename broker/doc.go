// Package broker is a node: it serves the Kafka protocol to clients, runs this
// node's replicas, and composes the parts of a process.
//
// # Parts
//
// Node (node.go, shutdown.go) opens and closes everything. The client side is
// the server: listeners, connections, one handler per API key (NN_name.go), the
// admin listener. The replica side is what this page is mostly about:
//
//   - Partition is one replica: its log, its role, its replication core
//     (package isr), and who waits for it. Partitions is the set of them.
//   - reconciler turns differences between Images into roles and, some at a
//     time (folders.go), into folders. Nobody else changes a role, and no call
//     from another node does.
//   - follower is the feed from one leader node, feeder the feed to one follower
//     node; the rules of both live in package feed, here are only the
//     goroutines and the bytes. follows and feeders are the sets of them.
//   - groups coordinates the consumer groups whose slots this node owns, around
//     the pure cores of package group. A slot's owner is a fact in the Image, as
//     a partition's leader is; all that its successor needs is in the Image too.
//   - diskWatch takes this node out while calls of its disk do not return: no
//     heartbeats, no clients. What it watches is vfs.Watch, below the logs.
//   - changes carries ISR proposals to the controller, keeper the confirmations
//     of deletions and the reconciled Image index, ticks the calls that a core
//     asked for at a time.
//
// # Flow of a produce
//
// The handler validates the batch without a lock and calls Partition.Append,
// which checks role, epoch, session and ISR and writes to the log under the
// partition's lock, then wakes the feeders. A follower's PROGRESS reaches
// isr.Leader through the feeder's reader; when the high watermark passes the
// batch, Ticket.Wait returns in the connection's second stage. A produce waits
// only within the leader epoch of its append.
//
// # Flow of a fetch
//
// All of it is second stage. A full request lists what it reads (fetchSet), an
// incremental one takes its fetchSession out of the cache and changes the set.
// Partition.Read answers as leader, or as follower to clients that know of it;
// a leader with a rack may name a replica in the client's instead. A fetch that
// waits watches its partitions, whose signals say no more than to look again; how
// soon it does depends on how much it still lacks (fetch_pace.go).
//
// # Flow of a group's request
//
// The first stage calls the group's core under its shard's lock and gets a
// ticket; the second waits for the ticket's answer. What the core wants stored is
// queued at the slot, whose worker has one SlotCommand on its way at a time, so
// that commits gather under load. Answers that promise something go out when the
// command is applied here. A worker that hears nothing repeats its command, which
// is taken once; refused for the slot's epoch, it ends the tenure, and everybody
// who waits is told to ask the new coordinator. 15_describe_groups.go and
// group_admin.go show why a group is not stable.
//
// # What always holds
//
//   - A role changes only under the partition's lock, and whatever acts for an
//     epoch (append, position, records of a feed, truncation) checks it there.
//   - The high watermark of a leader never goes back, and nothing above it is
//     shown to a consumer. A follower shows what lies below the high watermark
//     that it has heard of.
//   - Without a fresh session a node refuses what another leader could
//     contradict: acks 0 and 1, and reads; unless the whole ISR has answered on
//     the feed within the session.
//     It does no slot work either, and drops no member for it.
//   - A session does not tell that nobody else has acted. What a successor could
//     contradict for good (committed offsets, the refusal of a sequence, or of an offset past the end) is told
//     only when the Image is as new as the question: backend.sync.
//   - Files are deleted only on a tombstone of their topic id, or on a row of it that names the
//     replicas and leaves this node out.
//   - A node acts on being named a leader only under its own broker epoch.
//
// # Goroutines
//
// Two per client connection; two per node that is fed, two per node that feeds
// us; one each for reconciler, changes, keeper, retention, ticks and diskWatch; one per listener;
// one that creates topics, while clients ask for new ones; one for the timers of
// all groups, and one for each slot that has something to store, of which some stay.
// None per partition: an idle partition is its entry, without goroutine, timer
// or open file.
//
// # Locks
//
// In order: feeders.turn, feeder.mu or follower.mu, then Partition.mu, then the log's own. Of
// groups: shard.mu, under which the cores are called, then its leaves
// groupTimers.mu, groups.readyMu and topicView.mu.
// Leaves, under which nothing else is taken: Partitions.mu, feeders.mu, the
// feeder's inbox, changes.mu, keeper.mu, ticks.mu, fetchSessions.mu, topicCreator.mu. No lock is held across a
// wait, the network or Raft. Partition.mu is held across page-cache writes, and
// in one case across a sync: the truncation of a follower, which is rare and makes
// only its readers wait.
//
// # Imports
//
// Everything of ours but cmd and integration.
package broker
