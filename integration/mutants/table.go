package mutants

// Mutant is one deliberate fault.
type Mutant struct {
	Name string
	Rule string // what the product promises there, with the hazards that it answers
	File string
	Old  string // occurs exactly once in File
	New  string
	More []Edit     // further ones in the same file, where a rule is held in more than one place
	Also []FileEdit // and in other files
	// Seeds bounds the runs within which it must be found; 0 stands for DefaultSeeds.
	Seeds int
}

// Edit replaces one text, which occurs exactly once, by another.
type Edit struct{ Old, New string }

// DefaultSeeds is the bound for mutants that name none.
const DefaultSeeds = 150

// All returns the mutants, by package.
func All() []Mutant {
	var all []Mutant
	for _, some := range [][]Mutant{inISR(), inISRChanges(), inDurability(), inFeed(), inFSM(), inFSMSeats(), inMoves(), inGlue(), inGroups(), inElect(), inRecovery(), inFlush(), inTime(), inProof(), inStorage()} {
		all = append(all, some...)
	}
	return all
}

func inISR() []Mutant {
	const leader, change, lag, follower = "broker/isr/leader.go", "broker/isr/change.go", "broker/isr/lag.go", "broker/isr/follower.go"
	return []Mutant{
		{
			Name: "ack-early", File: lag,
			Rule: "the high watermark is the least counted end of all that bind (H1)",
			Old:  "low = min(low, l.counted(f))", New: "low = max(low, l.counted(f))",
		},
		{
			Name: "leader-counts-unflushed", File: lag,
			Rule: "with durability fsync the leader counts its own flushed end (H31)",
			Old:  "return l.flushed\n", New: "return l.end\n",
		},
		{
			Name: "count-written-for-flushed", File: lag,
			Rule: "with durability fsync a follower's flushed end counts (H31)",
			Old:  "return f.position.Flushed\n", New: "return f.position.Written\n",
		},
		{
			Name: "count-unknown", File: lag,
			Rule: "a member whose position is not known in this epoch holds the high watermark (H14, H20)",
			Old:  "if !f.known {\n\t\t\treturn false", New: "if !f.known {\n\t\t\tcontinue",
		},
		{
			Name: "ack-below-min", File: lag,
			Rule: "the high watermark stands while the ISR is below its minimum (H10)",
			Old:  "if l.BelowMinISR() {\n\t\treturn false\n\t}\n\tlow", New: "low",
		},
		{
			Name: "forget-proposed", File: lag,
			Rule: "members of a proposed ISR bind before it is committed (H7)",
			Old:  "return f.committed || f.proposed", New: "return f.committed",
		},
		{
			Name: "watermark-falls", File: lag,
			Rule: "a leader's high watermark never falls (H15)",
			Old:  "if low <= l.hw {", New: "if low == l.hw {",
		},
		{
			Name: "drop-before-commit", File: change,
			Rule: "members that a change removes bind until it is committed (H7)",
			Old:  "f.committed && l.mustLeave(f, now) ||", New: "f.committed && l.mustLeave(f, now) && func() bool { f.committed = false; return true }() ||",
		},
	}
}

// inDurability are those about which partitions survive the loss of all power.
func inDurability() []Mutant {
	const durability = "broker/isr/durability.go"
	return []Mutant{
		{
			Name: "leader-starts-flushed", File: "broker/isr/leader.go",
			Rule: "a new leader counts what was flushed when it began, and not its whole log (H31)",
			Old:  "flushed: sp.Flushed, hw", New: "flushed: sp.End, hw",
			Seeds: 3000,
		},
		{
			Name: "forget-recorded-fsync", File: durability,
			Rule: "flushed ends count until the Image says that it is over (H11, H31)",
			Old:  " || l.s.Durability == fsm.DurabilityFsync ||", New: " ||",
		},
		{
			Name: "forget-proposed-fsync", File: durability,
			Rule: "flushed ends count while a proposal may still record the partition as fsync (H7, H31)",
			Old:  " || l.pending.fsync\n", New: "\n",
		},
		{
			Name: "record-unflushed-members", File: durability,
			Rule: "a partition is recorded as fsync when every member has flushed what was acknowledged (H31)",
			Old:  "f.position.Flushed < l.hw {", New: "f.position.Flushed < 0 {",
		},
		{
			Name: "record-unflushed-leader", File: durability,
			Rule: "a partition is recorded as fsync when its leader has flushed what was acknowledged (H31)",
			Old:  " || l.flushed < l.hw:", New: ":",
		},
		{
			Name: "disk-loss-keeps-seats", File: "fsm/partition.go",
			Rule: "the loss of a disk costs the seats of fsync partitions, too (H9, H11)",
			Old:  "if d == leftTorn && p.Durability", New: "if p.Durability",
		},
	}
}

// inISRChanges are those about proposals and their answers, and about lag.
func inISRChanges() []Mutant {
	const leader, change, lag, follower = "broker/isr/leader.go", "broker/isr/change.go", "broker/isr/lag.go", "broker/isr/follower.go"
	return []Mutant{
		{
			Name: "roll-back-unknown", File: change,
			Rule: "a proposal of unknown outcome may still be applied (H7)",
			Old:  "p.doubt = true\n", New: "p.doubt = false\n\t\tp.change = nil\n\t\tl.rollBack()\n",
		},
		{
			Name: "committed-forgets", File: change,
			Rule: "an answered change binds with the old ISR until the Image brings it (H7)",
			Old:  "\t\tp.committed = true\n", New: "\t\tp.committed = true\n\t\tl.rollBack()\n",
		},
		{
			Name: "join-before-epoch-start", File: change,
			Rule: "a follower joins only past the start of the leader's own epoch (H4)",
			Old:  " || l.counted(f) < l.epochStart {", New: " {",
		},
		{
			Name: "join-below-watermark", File: change,
			Rule: "a follower joins only at or past the high watermark (H4)",
			Old:  "l.counted(f) < l.hw || l.counted(f) < l.epochStart", New: "l.counted(f) < l.hw-40",
		},
		{
			Name: "watermark-at-end", File: leader,
			Rule: "a new leader does not raise the high watermark to its end (H14)",
			Old:  "flushed: sp.Flushed, hw: sp.HW, epochStart", New: "flushed: sp.Flushed, hw: sp.End, epochStart",
		},
		{
			Name: "latest-too-soon", File: leader,
			Rule: "latest is told only once the high watermark has passed the epoch's start (H14, H15)",
			Old:  "return l.hw >= l.epochStart }", New: "return true }",
		},
		{
			Name: "heard-always", File: leader,
			Rule: "a leader without a session serves only while its whole ISR answers (H13)",
			Old:  "if !f.following || heard(f.member).Before(since) {\n\t\t\treturn false", New: "if false {\n\t\t\treturn false",
		},
		{
			Name: "follower-past-end", File: follower,
			Rule: "a follower's high watermark is bounded by its own end (H16)",
			Old:  "min(f.leaderHW, f.end)", New: "f.leaderHW",
		},
		{
			Name: "told-from-the-start", File: follower,
			Rule: "a follower shows nothing before its leader has told how far (H16)",
			Old:  "bool { return f.told }", New: "bool { return true }",
		},
		{
			Name: "watermark-follows-down", File: follower,
			Rule: "a follower's high watermark does not fall when a new leader does not know of it yet (H15)",
			Old:  "f.leaderHW = max(f.leaderHW, hw)", New: "f.leaderHW = hw",
			More: []Edit{{"f.hw = max(f.hw, min(f.leaderHW, f.end))", "f.hw = min(f.leaderHW, f.end)"}},
		},
		{
			Name: "start-not-followed", File: follower,
			Rule: "followers move their log start as the leader tells (H44)",
			Old:  "f.start = max(f.start, min(logStart, f.hw))", New: "f.start = max(f.start, min(logStart, 0))",
		},
	}
}

func inFeed() []Mutant {
	const receive, follower, pending = "broker/feed/receive.go", "broker/feed/follower.go", "broker/feed/pending.go"
	return []Mutant{
		{
			Name: "skip-divergence", File: receive,
			Rule: "records follow only a log that is a prefix of the leader's (H5)",
			Old:  "if e != f.LastEpoch || end < f.Written {", New: "if end < f.Written && e == f.LastEpoch {",
		},
		{
			Name: "trust-longer-log", File: receive,
			Rule: "a log that is longer than the leader's in its epoch has diverged (H2)",
			Old:  "if e != f.LastEpoch || end < f.Written {", New: "if e != f.LastEpoch {",
		},
		{
			Name: "cut-to-leaders-end", File: follower,
			Rule: "a follower cuts to the point that both logs share (H2)",
			Old:  "return min(ownEnd, end)", New: "return max(ownEnd, end)",
		},
		{
			Name: "report-unflushed", File: follower,
			Rule: "a follower reports as flushed what is (H31)",
			Old:  "l.Flushed = max(l.Flushed, p.local.Flushed)", New: "l.Flushed = l.Written",
		},
		{
			Name: "mark-without-attempt", File: pending,
			Rule: "frames of a dead attempt are dropped by the follower",
			Old:  "p != nil && p.attempt == r.Attempt && (p.open() || p.state == stateCutting)", New: "p != nil && (p.open() || p.state == stateCutting)",
			Seeds: 600,
		},
		{
			Name: "cut-what-can-not-be-compared", File: pending,
			Rule: "a follower without an epoch in common begins anew at the leader's start (H2, H44)",
			Old:  "if fr.Epoch == batch.NoEpoch {", New: "if false {",
			Seeds: 600,
		},
		{
			Name: "forget-refused", File: pending,
			Rule: "a refused partition is asked for again",
			Old:  "\t\t\tf.ask(p)\n\t\t}\n\t}\n\tclear", New: "\t\t\tp.state = stateParked\n\t\t}\n\t}\n\tclear",
		},
		{
			Name: "lose-dirty", File: "broker/feed/stream.go",
			Rule: "whoever has records to send is in the queue",
			Old:  "if !s.queued && s.open {", New: "if !s.queued && s.open && len(s.unacked) == 0 {",
		},
	}
}

func inFSM() []Mutant {
	const broker, isr, topic = "fsm/broker.go", "fsm/isr.go", "fsm/topic.go"
	return []Mutant{
		{
			Name: "fence-keeps-seat", File: broker,
			Rule: "fencing takes a broker out of every ISR in the same entry (H18)",
			Old:  "\te.evict(c.ID, leftWhole)\n", New: "",
		},
		{
			Name: "fence-by-chance", File: broker,
			Rule: "a command has one outcome, on whichever node it is applied (H52)",
			Old:  "\tb.Fenced = true\n\te.setBroker(b)\n\treturn Result{}\n}\n\nfunc (c UnfenceBroker)",
			New:  "\tfor first := range map[bool]bool{true: true, false: true} {\n\t\tb.Fenced = first\n\t\tbreak\n\t}\n\te.setBroker(b)\n\treturn Result{}\n}\n\nfunc (c UnfenceBroker)",
		},
		{
			Name: "unclean-is-clean", File: broker,
			Rule: "a loss of power or of the folder costs the seats in ISR and ELR (H10, H11)",
			Old:  "if !sameBoot && c.PrevCleanEpoch != cur.Epoch {", New: "if !sameBoot && c.PrevCleanEpoch > cur.Epoch {",
		},
		{
			Name: "new-folder-is-clean", File: broker,
			Rule: "another folder under the same id is an unclean stop (H9, H12)",
			Old:  "if c.Folder != cur.Folder {\n\t\treturn leftEmpty", New: "if c.Folder != cur.Folder {\n\t\treturn leftWhole",
		},
		{
			Name: "depose-by-a-copy", File: broker,
			Rule: "a late copy of a registration deposes nobody (H12)",
			Old:  "\tcase known && cur.Process == c.Process && cur.Folder == c.Folder:\n\t\treturn Result{Epoch: int64(cur.Epoch)}\n\tcase e.next.mayServe(c.ID, c.Folder) != 0:\n\t\treturn refused(e.next.mayServe(c.ID, c.Folder))\n\tcase c.Replaces != cur.Epoch:",
			New:  "\tcase c.Replaces > cur.Epoch:",
		},
		{
			Name: "readmit-fenced", File: isr,
			Rule: "a fenced or stopping broker does not enter an ISR (H8)",
			Old:  "if !known || !b.Eligible() || b.Epoch != m.Epoch ||", New: "if !known || b.Epoch != m.Epoch ||",
		},
		{
			Name: "readmit-old-incarnation", File: isr,
			Rule: "an ISR change names the incarnation of each member (H9)",
			Old:  "if !known || !b.Eligible() || b.Epoch != m.Epoch ||", New: "if !known || !b.Eligible() ||",
			Seeds: 1000,
		},
		{
			Name: "any-partition-epoch", File: isr,
			Rule: "an ISR change is compared with the partition epoch it was decided at (H6)",
			Old:  "case p.PartitionEpoch != pe:", New: "case p.PartitionEpoch < pe:",
			Seeds: 1000,
		},
		{
			Name: "any-leader-epoch", File: isr,
			Rule: "a change is compared with the leader epoch it was decided at (H6)",
			Old:  "case p.LeaderEpoch != le:\n\t\treturn StaleLeaderEpoch\n\tcase p.PartitionEpoch != pe:", New: "case p.LeaderEpoch < le:\n\t\treturn StaleLeaderEpoch\n\tcase p.PartitionEpoch < pe:",
			Seeds: 1000,
		},
		{
			Name: "tombstone-too-short", File: topic,
			Rule: "a tombstone stays until every replica has confirmed (H22, H23)",
			Old:  "if len(t.Pending) == 0 {", New: "if len(t.Pending) <= 1 {",
		},
		{
			Name: "leader-epoch-stands", File: isr,
			Rule: "each change of leader raises the leader epoch",
			Old:  "\t\tnext.Leader = c.Leader\n\t\tnext.LeaderEpoch++", New: "\t\tnext.Leader = c.Leader",
		},
	}
}

// inFSMSeats are those about who may lead later, and at which risk.
func inFSMSeats() []Mutant {
	const partition = "fsm/partition.go"
	return []Mutant{
		{
			Name: "elr-keeps-unclean", File: partition,
			Rule: "whoever stopped uncleanly is not in the ELR (H10)",
			Old:  "return !full && id != torn && left(id) })", New: "return !full && left(id) })",
		},
		{
			Name: "elr-is-forgotten", File: partition,
			Rule: "members that leave an ISR below its minimum stay eligible (H10)",
			Old:  "return !full && id != torn && left(id) })", New: "return !full && id != torn && left(id) && slices.Contains(p.ELR, id) })",
		},
		{
			Name: "forget-former-members", File: partition,
			Rule: "whoever left a full ISR is among the last members until the leader confirms (H10)",
			Old:  "return id == torn || full && left(id) ||", New: "return id == torn ||",
			Seeds: 600,
		},
		{
			Name: "all-disks-lost", File: partition,
			Rule: "when every member lost its disk the logs of all replicas count (H10)",
			Old:  "p.LastMembers = slices.Clone(p.Replicas)\n\t\treturn", New: "return",
			Seeds: 300,
		},
		{
			Name: "damage-keeps-epoch", File: "fsm/isr.go",
			Rule: "a report of damage ends the leader epoch, so that positions from before the cut count for nothing (H36)",
			Old:  "if next.Leader != NoBroker {", New: "if false {",
		},
	}
}

// inGroups are those about what a group has committed.
func inGroups() []Mutant {
	const offsets, slots = "fsm/offsets.go", "fsm/slots.go"
	return []Mutant{
		{
			Name: "commit-is-not-stored", File: offsets,
			Rule: "a commit that is acknowledged is stored (H47)",
			Old:  "added, change := row.put(p, c.CommitMs, c.ExpireMs)",
			New:  "if e.next.index%16 == 0 {\n\t\t\tcontinue\n\t\t}\n\t\tadded, change := row.put(p, c.CommitMs, c.ExpireMs)",
		},
		{
			Name: "commit-in-any-generation", File: offsets,
			Rule: "a commit is compared with the group's generation when it is stored (H47)",
			Old:  "case g.generation(m) == c.Epoch:", New: "case g.generation(m) >= c.Epoch:",
		},
		{
			Name: "any-slot-epoch", File: slots,
			Rule: "a deposed coordinator's command is refused by the epoch of its slot (H49)",
			Old:  "case cur.Owner == NoBroker || cur.Epoch != c.Epoch:", New: "case cur.Owner == NoBroker:",
		},
		{
			Name: "any-slot-sequence", File: slots,
			Rule: "a coordinator's command that comes again, or late, is not taken again (H47)",
			Old:  "case c.Seq < cur.Seq:", New: "case c.Seq < 1:",
			More: []Edit{{"case c.Seq == cur.Seq:", "case c.Seq == 0:"}},
		},
	}
}

func inElect() []Mutant {
	const election, liveness = "controller/elect/election.go", "controller/elect/liveness.go"
	return []Mutant{
		{
			Name: "elect-nobody-from-elr", File: election,
			Rule: "without a live member of the ISR one of the ELR leads (H10)",
			Old:  "} else if elr := members(im, p.Replicas, p.ELR); len(elr) > 0 {", New: "} else if elr := members(im, p.Replicas, p.ELR); len(elr) > 9 {",
		},
		{
			Name: "elect-any-replica", File: election,
			Rule: "a leader comes from the ISR",
			Old:  "isr := members(im, p.Replicas, p.ISR)\n\tleader", New: "isr := members(im, p.Replicas, p.Replicas)\n\tleader",
		},
		{
			Name: "recover-shortest", File: election,
			Rule: "among last members the log with the greatest epoch and end leads (H10, H31)",
			Old:  "(top.Broker == fsm.NoBroker || e.better(top)) {", New: "(top.Broker == fsm.NoBroker || top.better(e)) {",
			More: []Edit{{" || e.better(top) && (member", " || top.better(e) && (member"}},
		},
		{
			Name: "recover-first-answer", File: election,
			Rule: "nobody is chosen before all of the last members have answered (H10)",
			Old:  "logsOf(asked, ends)\n\tif len(whole)+len(damaged) < len(asked) {", New: "logsOf(asked[:1], ends)\n\tif len(whole)+len(damaged) < 1 {",
		},
		{
			Name: "ask-last-members-only", File: election,
			Rule: "whoever lives is asked for the end of its log beside the last members (H10)",
			Old:  "return live, allBack || MayLose", New: "return members(im, p.Replicas, p.LastMembers), allBack || MayLose",
		},
		{
			Name: "unclean-takes-any", File: "controller/elect/preferred.go",
			Rule: "an election that an operator asked for takes the best log of those that answered (H55)",
			Old:  "leader := best(p, whole).Broker", New: "leader := best(p, whole[:min(1, len(whole))]).Broker",
			Seeds: 1000,
		},
		{
			Name: "unclean-everywhere", File: election,
			Rule: "nobody leads at the risk of loss before the last members are back, unless the topic allows it (H55)",
			Old:  "return ok && t.Config.Unclean", New: "return ok && (t.Config.Unclean || true)",
		},
		{
			Name: "session-too-short", File: liveness,
			Rule: "nobody is fenced before its session is over (H13)",
			Old:  "l.sessions[id] = &session{epoch: epoch, deadline: now.Add(l.session)}\n\treturn true", New: "l.sessions[id] = &session{epoch: epoch, deadline: now.Add(l.session / 3)}\n\treturn true",
		},
		{
			Name: "takeover-fences", File: liveness,
			Rule: "a new controller gives everyone a full session (H51)",
			Old:  "l.sessions[b.ID] = &session{epoch: b.Epoch, deadline: now.Add(l.session)}\n\t}\n}", New: "l.sessions[b.ID] = &session{epoch: b.Epoch, deadline: now.Add(l.session / 50)}\n\t}\n}",
		},
		{
			Name: "nobody-expires", File: liveness,
			Rule: "a broker without heartbeats is fenced (H18)",
			Old:  "if !b.Fenced && s.epoch == b.Epoch && !s.live(now) {", New: "if !b.Fenced && s.epoch == b.Epoch && s.live(now.Add(l.session)) {",
		},
	}
}

// inRecovery are those about what a controller knows of logs when only last members are
// left: soft state that each new one gathers again.
func inRecovery() []Mutant {
	const recovery = "controller/elect/recovery.go"
	return []Mutant{
		{
			Name: "never-ask-again", File: recovery,
			Rule: "a question without an answer is asked again",
			Old:  "in.todo = append(in.todo, tp)\n\t\t\tin.notYet = now.Add(r.pause)", New: "in.notYet = now.Add(r.pause)",
		},
	}
}
