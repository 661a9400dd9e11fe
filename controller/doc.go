// Package controller decides on the Raft leader and gets decisions into the log.
//
// # Responsibility
//
// It owns Raft (hashicorp/raft behind our store, transport and state machine), the peer
// listener with its preface, the forming of a cluster, who joins and votes later, the calls
// between nodes and the controller, and this node's session with the controller. It holds no rule of replication:
// what may be stored is fsm's, who should lead or live is elect's.
//
// # Data flow
//
//	Propose ─ pack ─ local term, or control connection to the leader ─ gather ─ Raft ─ machine.Apply ─ Image
//	connection to the leader ends, or can not be made ─ redials refused ─ other voters refused ─ election
//	heartbeat, register, stop ─ the term's loop ─ facts ─ Raft ─ Image on every node
//	Image ─ Changed ─ the term's loop (elections) and the brokers' reconcilers
//	Reassign ─ the term's loop ─ replicas that come ─ Raft ─ in sync ─ the term's loop ─ replicas that go
//	empty node ─ join connection to any node ─ controller ─ AdmitNode (its id) ─ Raft server without a vote ─ snapshot or log
//	elect.Recovery ─ questions to brokers, where their logs end ─ answers ─ leaders at the risk of loss
//
// OpenSurvivor and Recover work on the folder of a stopped node, for a cluster that lost its
// majority for good.
//
// A call goes to whoever leads. What was surely not done is tried again at the next leader;
// what may have been done is tried again only when doing it twice is harmless, and is
// reported as ErrUnknown otherwise. A proposal returns when the local Image has reached it.
//
// # Invariants
//
//   - Only the first node of a list creates a cluster, and only from equal lists of empty
//     folders (decideForming). A Raft server is a node id in one folder; a node that lost its
//     log is never that server again.
//   - A folder has one node id for good, decided by an entry. A node joins without a vote; a vote
//     is given to one that keeps up, and taken where those that are left and answer are a
//     majority; one change of Raft's servers at a time, guarded by the index of the configuration
//     that it was decided on.
//   - Nothing is decided before the barrier of the term has passed, and everything decided is
//     an entry that Apply guards by epochs.
//   - A heartbeat is acknowledged only after the leadership was verified later than its
//     arrival; a session is aged from the sending of the heartbeat.
//   - A node starts only from metadata without a gap: what the newest readable snapshot lacks
//     is in the log, all of it where no snapshot can be read.
//   - The Raft store is never used after its first error or stall: Config.Exit is called. That
//     there is no room for entries is no error: it is known before anything is written, and
//     until there is room this node stores nothing new and asks for no votes.
//   - Nobody stands for election before its time unless the leader's port refuses a majority.
//   - A store opens with what was stored, or not at all: every byte is checked (controller/wal).
//   - Raft's main loop handles every heartbeat (no fast path), Raft never pipelines, and the
//     leadership is transferred only when the node is about to stop. Who loses its vote has another
//     stand first.
//
// # Goroutines
//
//	peers.accept          one; ends with the listener
//	peers.serve           one a connection accepted; runs the handler of its kind
//	leadership.watch      one; does nothing but empty Raft's channels into the cell
//	Node.runTerms         one; while this node leads it is the term's loop
//	term.verify           at most one; waits for a verification of the leadership
//	term.probe            at most one a broker; redials it
//	term.ask              at most one a broker's incarnation; gets a question about its logs answered
//	proposer.run, send    one, and one an entry in flight (8 at most)
//	gatherer.run, commit  one, and one a common entry on its way; idle on nodes that do not lead
//	Node.compact          one; makes a snapshot when the log has become large
//	link.write, read      two a control connection; on the serving side the reader is peers.serve.
//	                      On the other side, and where a dial fails, Node.succeed follows, once at a time
//	askVoter              one a voter that is asked whether the leader refuses it, or when it last
//	                      answered one
//	judgeFormer           one a term; shortens the session of the controller before, if it was silent
//	readCalls             one a call being served (128 a connection at most), but for small proposals
//	Session.run           one once the session has started
//	syncs.run             one while somebody waits in Sync
//	pusher.run            one a follower, from the first commit that it is told of
//	goRaft                one a call of Raft that is waited for; ends with Raft's answer
//	Raft's own            ended by stopRaft
//
// All but the last two end when Node.ctx does, and Close waits for them. Time limits of single
// operations run on timers, and stopRaft leaves its own two goroutines behind when a disk hangs.
//
// # Locks
//
// All are leaves: none is held while another is taken, nor across network, disk, Raft or a
// channel wait. peers.mu (handlers, connections), leadership.mu (the cell), machine.mu
// (running, halted), proposer.mu (queue), gatherer.mu (what waits), compactor.mu
// (bytes and snapshots), controlLinks.mu (the link to the leader), syncs.mu (who waits in Sync),
// callLink.mu (pending calls), pusher.mu, reach.mu and followerEnds.mu (what followers have and
// whether they answer), store.mu (poisoned), Node.mu (no goroutine after Close; routes).
// Those of the log are in controller/wal.
// The Image is an atomic pointer with Raft's FSM goroutine as its only writer; the fields of
// a term below "loop" belong to its loop.
//
// # Imports
//
// Of ours: controller/elect, controller/wal, storage/vfs, fsm, wire (error codes of topic results), wire/codec.
package controller
