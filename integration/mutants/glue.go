package mutants

// inGlue are those whose rule is held by package broker, between the cores. The simulator does
// in single steps what that does with locks, and the fault is put into the file that does it.
func inGlue() []Mutant {
	const reconcile, replica, group = "integration/sim/reconcile.go", "integration/sim/replica.go", "integration/sim/group.go"
	return []Mutant{
		{
			Name: "delete-without-a-licence", File: reconcile,
			Rule: "only a tombstone, or a row that leaves the node out, is a licence to delete (H23, H24)",
			Old:  "if pd.New != nil && slices.Contains(pd.New.Replicas, n.id) {\n\t\t\tcontinue",
			New:  "if pd.New != nil && slices.Contains(pd.New.ISR, n.id) {\n\t\t\tcontinue",
		},
		{
			Name: "forget-what-left-meanwhile", File: reconcile,
			Rule: "what a start found is compared with the Image in which the node has registered (H22, H23)",
			Old:  "\tn.removeReplicas(fsm.Diff(n.adopted, n.im))\n", New: "",
		},
		{
			Name: "cut-within-an-epoch", File: replica,
			Rule: "a damaged log is cut at the beginning of an epoch only (H36)",
			Old:  "if r.role == wanted && r.leader == leader && r.epoch == epoch {\n",
			New:  "if r.role == wanted && r.leader == leader && r.epoch == epoch {\n\t\tif !seated {\n\t\t\tr.heal()\n\t\t}\n",
		},
		{
			Name: "refuse-without-asking", File: replica,
			Rule: "a sequence is refused after asking the controller who leads (H26)",
			Old:  "\t\t\tr.judge(err, done)\n\t\t\treturn", New: "\t\t\tdone(storage.Appended{}, err)\n\t\t\treturn",
		},
		{
			Name: "begin-behind-a-batch", File: "integration/sim/replica_feed.go",
			Rule: "an empty log begins with the whole of the batch in which the leader's starts (H44)",
			Old:  "if err != nil || r.log.Start() != end ||", New: "if true || err != nil || r.log.Start() != end ||",
		},
		{
			Name: "answer-without-asking", File: group,
			Rule: "a coordinator tells what is committed after asking the controller (H49)",
			Old:  "t.n.sync(syncWait, func(err error) {", New: "func(f func(error)) { f(nil) }(func(err error) {",
			Seeds: 600,
		},
		{
			Name: "take-late-commits", File: group,
			Rule: "a commit on a connection that its client has given up is not taken (H47)",
			Old:  "if conn <= t.began || conn < t.commits {", New: "if false {",
		},
	}
}
