// Package feed is the stream that carries partitions' records from a leader
// node to a follower node: its frames and the state machines of both sides,
// without IO. The rules by which a follower's log becomes a copy of the
// leader's, and by which a position may count, live here and in package isr,
// and nowhere else.
//
// # Data flow
//
// A pair of nodes has one connection for each direction of following. On it the
// follower node's Follower and the leader node's Feeder each hold all
// partitions that the one leads and the other follows:
//
//	Follower.Add ──FOLLOW──▶ Feeder ──VerdictOpened──▶ isr.Leader
//	ActionMark   ◀──MARK──── Feeder.Next             (at once, and when watermarks move)
//	ActionAppend ◀──FEED──── Feeder.Next, Sent       (whole batches by sendfile)
//	Appended ────PROGRESS──▶ Feeder ──VerdictProgressed──▶ isr.Leader
//	ActionTruncate ◀DIVERGED─ Feeder                  cut, Truncated, FOLLOW again
//	ActionReset, ActionRefused ◀REFUSED─ Feeder       reset, or asked again after a pause
//
// # What always holds
//
//   - Handles and attempts only rise and are never used twice on a connection.
//     An attempt binds one topic id and one leader epoch, and every frame names
//     it: frames of any other are dropped by both sides, their records drained.
//   - A FOLLOW is judged first by the leader epoch, which must be equal, then by
//     the leader's log start, then by (last epoch, end). Only what passes all of
//     them opens an attempt and counts as a position; DIVERGED and REFUSED count
//     for nothing. Out of range is never answered at an unequal epoch, and the
//     follower believes it only if it agrees with its own log.
//   - DIVERGED names the largest epoch of the leader's log that is not above the
//     follower's last one, with its end. The follower cuts to the common point
//     (CutTo), so its log gets shorter, and follows again until both agree. When
//     the leader has no such epoch left, nothing can be compared, and the follower
//     begins anew at the leader's start.
//   - An accepted FOLLOW is answered at once by MARK.
//   - Window bytes are counted by written ends and die with their attempt.
//   - Records go out in turn over the partitions that have some, one FEED each.
//     A partition at rest costs an entry in two maps: it has no timer and is in
//     no queue.
//
// # One connection for a pair
//
// This version has no second connection for followers that are far behind:
// turns of at most one FEED and a window for each partition keep the others
// moving. The machines would allow it: Remove on the one Follower and, once its
// UNFOLLOW has been sent, Add on the other. The leader would then have to wait
// for the former before it counts the latter, which one connection gives for nothing.
//
// # Bytes
//
// A frame is its kind (1 byte), the length of its body (4 bytes, big-endian) and
// the body; all numbers are fixed in size. The records announced by a FEED
// follow it and are not part of its length. The version is that of the
// connection's preface.
//
// # Driving a Feeder (the leader's node)
//
// The shell guards the Feeder with a lock of its own. View is called inside it
// and takes the partition's lock, so the order is: feeder, then partition. Hence
// Dirty, DirtyMark and CloseEpoch are called without the partition's lock.
//
//	reader:  f, err := feed.ReadFrame(r, &scratch)
//	         lock; verdicts, err = d.Receive(verdicts[:0], f, view); apply them; unlock
//	         wake the writer
//	writer:  for {
//	             lock; out := d.Next(view, now); apply out.Gone; unlock
//	             switch out.Kind {
//	             case feed.OutFrame:
//	                 buf = feed.AppendFrame(buf, out.Frame) // sent with what follows, or before waiting
//	             case feed.OutSend:
//	                 r, err := log.Read(out.Send.From, out.Send.End, out.Send.MaxBytes) // of a log that still leads out.Send.Epoch
//	                 lock; f, ok := d.Sent(out.Send, r.End(), r.Len()); unlock // or d.Failed
//	                 if ok { send feed.AppendFrame(buf, f) and the range } else { r.Release() }
//	             case feed.OutNone:
//	                 flush; wait for a wake or for out.WakeAt
//	             }
//	         }
//
// Verdicts are applied before the feeder's lock is released, in order, and only
// to a partition that still leads in Verdict.Epoch. A new connection of a node
// takes the place of the older one, unless that one is of a newer incarnation:
// the shell closes the older Feeder, applies the verdicts of Close, and only
// then reads from the new one.
// A leader that leaves an epoch first makes its View refuse the partition, then
// calls CloseEpoch on every Feeder, then goes on.
//
// The shell calls Ping now and then (a fraction of the session) and takes Heard
// as the time for which the node is known to have been alive: the sending of a
// question, not the reading of its answer, which may have waited while this node
// stood still.
//
// # Driving a Follower (the follower's node)
//
//	reader:  f, err := feed.ReadFrame(r, &scratch)
//	         lock; actions, err = w.Receive(actions[:0], f, now); unlock
//	         for each action:
//	             ActionDrain:    discard a.Size bytes
//	             ActionAppend:   read a.Size bytes, check the CRCs, append, take the watermarks; w.Appended(a.Ref, local)
//	                             a bad CRC: append what came before it; w.Bad(a.Ref, offset, local, now)
//	                             any other error: w.Retry(a.Ref, local, now)
//	             ActionMark:     take the watermarks
//	             ActionTruncate: to := feed.CutTo(a.Epoch, a.End, log.EpochEnd); truncate, or reset if to is below the log start; w.Truncated(a.Ref, local)
//	             ActionReset:    reset the log to a.LogStart; w.Truncated(a.Ref, local)
//	         wake the writer
//	writer:  lock; frames = w.Pending(frames[:0], 64, now); unlock; send them; wait for a wake or w.WakeAt()
//
// An action holds only while the partition follows in a.LeaderEpoch: the shell
// checks it under the partition's lock. A connection that breaks is replaced by
// a new Follower to which every partition is added again. A node calls Remove
// before it acts on a newer leader epoch.
//
// # Goroutines, locks, imports
//
// None: the caller's lock guards each machine. The package reads no clock; it
// imports isr, fsm and wire/batch.
package feed
