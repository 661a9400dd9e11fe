package mutants

// Plan is a plan of the simulator that broke an invariant once
// (integration/sim/testdata/regressions), with the fault under which it must break one
// again: a row of the table, which seeds find too, or edits of its own, where they do not.
type Plan struct {
	File    string
	Mutant  string
	Edits   []FileEdit
	Without string // why neither is there
}

// Plans returns the plans that are kept.
func Plans() []Plan { return append(sharpPlans(), dullPlans()...) }

// sharpPlans see their fault.
func sharpPlans() []Plan {
	return []Plan{
		{File: "commit_delivered_late.json", Mutant: "take-late-commits"},
		{File: "deposed_coordinator_behind_a_firewall.json", Mutant: "answer-without-asking"},
		{File: "deleted_while_it_boots.json", Mutant: "forget-what-left-meanwhile"},
		{File: "producers_forgotten_by_the_wall_clock.json", Mutant: "idle-by-the-wall-clock"},
		{File: "registration_comes_again_late.json", Mutant: "depose-by-a-copy"},
		{
			File:  "batch_lies_up_to_the_recovery_point.json",
			Edits: []FileEdit{{"storage/recover.go", "case h.End() < r.marks.recovery:", "case flushed:"}},
		},
		{
			File:  "start_written_before_producers.json",
			Edits: []FileEdit{{"storage/recover.go", " && covered(r.found.snaps, segs[1].base, m.recovery)", ""}},
		},
		{
			File:  "elected_for_a_stale_tail.json",
			Edits: []FileEdit{{"controller/elect/election.go", " || e.extends(member))", " || true)"}},
		},
		{
			File:  "cut_while_eligible.json",
			Edits: []FileEdit{{"integration/sim/replica.go", "if wanted == roleFollower && !seated {", "if wanted == roleFollower {"}},
		},
	}
}

// dullPlans see nothing wrong with their fault any more, and few seeds ever did: tests
// guard the rule. They are kept as runs like others, until the fault is found anew.
func dullPlans() []Plan {
	const early = "it is older than the table, and which edit puts its fault back is not known; "
	return []Plan{
		{File: "join_confirms_nothing.json", Without: "stale; fsm/testdata/h10_join_confirms_nothing.txt guards the rule"},
		{File: "offline_while_it_is_cut.json", Without: "stale; broker.TestDiskThatFailsInACutEndsTheNode guards the rule"},
		{File: "trimmed_before_the_checkpoint.json", Without: "stale; storage.TestTrimRemembersProducers guards the rule"},
		{File: "watermark_of_what_was_lost.json", Without: "stale; storage.TestWatermarkOfWhatWasLost guards the rule"},
		{File: "cut_of_an_emptied_log.json", Without: early + "storage/testdata/epochs/h44_emptied.txt guards the rule"},
		{File: "start_moved_to_the_end.json", Without: early + "storage/testdata/epochs/h44_restarts.txt guards the rule"},
		{File: "fenced_and_back_with_old_metadata.json", Without: early + "controller.TestSessionCountsOnlyWhatItCaughtUpWith guards the rule"},
	}
}
