package mutants

// FileEdit is one change of a file.
type FileEdit struct {
	File string
	Old  string // occurs exactly once in File
	New  string
}

// ChaosMutant is a deliberate fault that a run of scripts/chaos with real processes must find.
type ChaosMutant struct {
	Name  string
	Rule  string // what the product promises there
	Edits []FileEdit
	Args  string // of scripts/chaos
	Found string // a pattern of what the report must say
	// Hosts tells that the run needs hosts with disks of their own, and so root.
	Hosts bool
}

// Chaos returns the mutants for real processes.
func Chaos() []ChaosMutant { return append(chaosReplication(), chaosCoordination()...) }

// lost are the anomalies of a record that is gone or has another in its place.
const lost = `(lost-write|unseen|inconsistent-offsets|data is gone).*`

func chaosReplication() []ChaosMutant {
	const cuts = "-faults cut-peers -times 8"
	return []ChaosMutant{
		{
			Name: "ack-early", Rule: "a record is acknowledged when the whole ISR has it", Args: cuts, Found: lost,
			Edits: []FileEdit{{"broker/isr/lag.go", "low = min(low, l.counted(f))", "low = max(low, l.counted(f))"}},
		},
		{
			Name: "show-uncommitted", Rule: "a consumer is shown nothing above the high watermark", Args: cuts, Found: `(inconsistent-offsets|nonmonotonic-poll|unknown-value).*`,
			Edits: []FileEdit{{"broker/partition_read.go", "res.Preferred != nil || r.Offset >= s.hw {\n\t\treturn res, nil\n\t}\n\tres.Range, err = p.log.Read(r.Offset, s.hw,",
				"res.Preferred != nil || r.Offset >= end {\n\t\treturn res, nil\n\t}\n\tres.Range, err = p.log.Read(r.Offset, end,"}},
		},
		{
			Name: "forget-fsync", Rule: "with durability fsync a record is acknowledged when it is on the disks", Args: "-scenario power-fsync", Found: lost, Hosts: true,
			Edits: []FileEdit{{"storage/commit.go", "if err := s.f.Sync(); err != nil {", "if err := error(nil); err != nil {"}},
		},
		{
			Name: "leader-counts-unflushed", Rule: "with durability fsync the leader counts what it has flushed, and followers what they have", Args: "-scenario power-fsync", Found: lost, Hosts: true,
			Edits: []FileEdit{
				{"broker/isr/lag.go", "return l.flushed\n", "return l.end\n"},
				{"broker/isr/lag.go", "return f.position.Flushed\n", "return f.position.Written\n"},
			},
		},
	}
}

func chaosCoordination() []ChaosMutant {
	return []ChaosMutant{
		{
			Name: "no-duplicates-known", Rule: "a batch that comes again is answered with its place", Args: "-faults reply-loss -times 4", Found: `(duplicate|OUT_OF_ORDER).*`,
			Edits: []FileEdit{
				{"storage/producer.go", "if b.firstSeq() == s.first && b.lastSeq == s.last {", "if b.firstSeq() == s.first && b.lastSeq == s.last && false {"},
			},
		},
		{
			Name: "followers-forget-producers", Rule: "a new leader knows the last batches of each producer", Args: "-faults kill -times 4", Found: `(duplicate|OUT_OF_ORDER|UNKNOWN_PRODUCER).*`,
			Edits: []FileEdit{{"storage/append.go", "if b.HasProducer() {\n\t\t\tl.producers.noteBatch", "if b.HasProducer() && len(run) == len(b) && l.d.o.MaxProducers == 0 {\n\t\t\tl.producers.noteBatch"}},
		},
		{
			Name: "followers-forget-trims", Rule: "a log that was trimmed starts there on every replica", Args: "-scenario S15", Found: `starts at \d+ again, and had been trimmed to.*`,
			Edits: []FileEdit{
				{"broker/partition_feed.go", "return p.log.RaiseStart(start)", "return nil"},
				{"broker/partition_trim.go", "if low >= to {\n\t\t\treturn low, nil", "if low >= 0 {\n\t\t\treturn to, nil"},
			},
		},
		{
			Name: "deposed-coordinator-tells", Rule: "a coordinator tells what is committed only from metadata no older than the question", Hosts: true,
			Args: "-faults cut-refused -times 8", Found: `committed-back.*`,
			Edits: []FileEdit{{"broker/09_offset_fetch.go", "if f.srv.backend.sync(ctx) != nil {", "if ctx.Err() != nil {"}},
		},
		{
			Name: "any-generation", Rule: "a member commits only in its present generation", Args: "-scenario S12", Found: `took a commit of a generation that is over.*`,
			Edits: []FileEdit{
				{"broker/group/offsets.go", "case epoch != g.generation(m):", "case epoch > g.generation(m):"},
				{"broker/group/offsets.go", "case epoch == m.Epoch:\n\t\treturn None", "case epoch <= m.Epoch:\n\t\treturn None"},
				{"fsm/offsets.go", "case g.generation(m) == c.Epoch:", "case g.generation(m) >= c.Epoch:"},
			},
		},
	}
}
