package mutants

// inMoves are those about replicas that come and go.
func inMoves() []Mutant {
	const reassign = "fsm/reassign.go"
	return []Mutant{
		{
			Name: "finish-before-caught-up", File: reassign,
			Rule: "nobody is removed before all that are added are in the ISR (H24)",
			Old:  "!(enough && subset(p.Adding, p.ISR))", New: "!enough",
			More: []Edit{{"settles && !(enough && slices.Contains(p.ISR, id))", "settles && !enough"}},
		},
		{
			Name: "finish-below-min-isr", File: reassign,
			Rule: "whoever leaves, the minimum of those that stay is in the ISR (H24)",
			Old:  "enough := len(next.ISR) >= int(next.MinISR)", New: "enough := len(next.ISR) > 0",
		},
		{
			Name: "leave-keeps-epoch", File: reassign,
			Rule: "whoever leaves ends the leader epoch in which its positions counted (H24, H54)",
			Old:  "if c.Leader != p.Leader || !subset(p.Replicas, c.Replicas) {", New: "if c.Leader != p.Leader {",
		},
		{
			Name: "leave-unconfirmed", File: reassign,
			Rule: "nobody leaves whose disk has what the memory of the others has (H24, H10)",
			Old:  "p.holds(id) && !(enough && p.Confirmed)", New: "p.holds(id) && !enough",
		},
		{
			Name: "confirmed-for-good", File: "fsm/isr.go",
			Rule: "another ISR is to be confirmed anew (H24, H10)",
			Old:  "next.Confirmed = item.Confirms && next.Reassigning() && slices.Equal(next.ISR, p.ISR)",
			New:  "next.Confirmed = next.Reassigning() && (p.Confirmed || item.Confirms)",
		},
		{
			Name: "confirm-from-memory", File: "broker/isr/change.go",
			Rule: "what a reassignment waits for is on the disks of all members (H24, H10)",
			Old:  "!(f.known && f.position.Flushed >= end)", New: "!(f.known && f.position.Written >= end)",
		},
		{
			Name: "leaver-stays-leader", File: "controller/elect/reassign.go",
			Rule: "a leader that leaves hands over in the same step (H24)",
			Old:  "if p.Leader == fsm.NoBroker || slices.Contains(replicas, p.Leader) {", New: "if p.Leader >= fsm.NoBroker {",
		},
		{
			Name: "forget-reassignments", File: "fsm/block.go",
			Rule: "the index of reassignments has every one that runs",
			Old:  "if b.rows[i].lengths[listAdding]+b.rows[i].lengths[listRemoving] > 0 {", New: "if b.rows[i].lengths[listAdding] > 0 {",
		},
	}
}
