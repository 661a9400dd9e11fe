package mutants

// inFlush are those about what makes a log durable.
func inFlush() []Mutant {
	return []Mutant{
		{
			Name: "forget-folder-sync", File: "storage/flush.go",
			Rule: "the names of new files are made durable before the flushed end moves (H33)",
			Old:  "if err := d.fs.SyncDir(j.l.Dir()); err != nil {", New: "if err := error(nil); err != nil {",
		},
		{
			Name: "forget-file-sync", File: "storage/commit.go",
			Rule: "the flushed end moves only after fsync (H31)",
			Old:  "if err := s.f.Sync(); err != nil {", New: "if err := error(nil); err != nil {",
		},
		{
			Name: "flushed-before-sync", File: "storage/flush.go",
			Rule: "what is reported as flushed has been synced (H31)",
			Old:  "func() error { return d.syncFiles(jobs, all) },", New: "func() error {\n\t\t\tfor _, j := range jobs {\n\t\t\t\tj.l.flushed.Store(int64(j.end))\n\t\t\t\tj.l.committed()\n\t\t\t}\n\t\t\treturn d.syncFiles(jobs, all)\n\t\t},",
		},
	}
}

// inTime are those about what the wall clock is not asked.
func inTime() []Mutant {
	return []Mutant{
		{
			Name: "idle-by-the-wall-clock", File: "storage/options.go",
			Rule: "a producer is forgotten for the time that has passed, not for what the wall clock shows (H28)",
			Old:  "	if o.Steady == nil {", New: "	if true {",
			Seeds: 1000,
		},
	}
}

// inProof are those about bytes that change on a disk.
func inProof() []Mutant {
	const prove, scrub = "storage/prove.go", "storage/scrub.go"
	return []Mutant{
		{
			Name: "scrub-nothing", File: scrub,
			Rule: "what nobody reads is proven by the scrub (H36)",
			Old:  "n, err := sc.queue[0].scrub(limit - done)", New: "n, err := int64(0), error(nil)",
		},
		{
			Name: "scrub-without-sums", File: scrub,
			Rule: "the scrub compares checksums (H36)",
			Old:  "for p.sc.pos < p.old && p.sc.pos-pos < limit {", New: "for old := p.old; p.sc.pos < old && p.sc.pos-pos < limit; {\n\t\tp.old = 0",
		},
		{
			Name: "serve-unproven", File: prove,
			Rule: "what an earlier run wrote is proven before anybody is given it (H36)",
			Old:  "return sound >= old\n", New: "return sound >= 0 || old < 0\n",
		},
		{
			Name: "prove-without-sums", File: prove,
			Rule: "a proof compares checksums (H36)",
			Old:  "if p.sc.pos < p.old && p.sc.pos >= p.sound {", New: "if p.sc.pos < 0 {",
		},
	}
}

func inStorage() []Mutant {
	return []Mutant{
		{
			Name: "rename-before-sync", File: "storage/checkpoint.go",
			Rule: "a replaced file is synced before it gets its name (H34)",
			Old:  "if err := writeTmp(fsys, path, data, vfs.File.Sync); err != nil {", New: "if err := writeTmp(fsys, path, data, leaveUnsynced); err != nil {",
		},
		{
			Name: "skip-crc-at-recovery", File: "storage/recover.go",
			Rule: "recovery cuts at the first batch that is not whole (H35)",
			Old:  "return sc.checkCRC(h.CRC(), n)", New: "return nil",
		},
		{
			Name: "append-behind-a-cut", File: "storage/append.go",
			Rule: "no byte position of a file is written twice (H37)",
			Old:  "if s == nil || s.cut || !s.fits", New: "if s == nil || !s.fits",
		},
		{
			Name: "keep-recovery-point", File: "storage/truncate.go",
			Rule: "a cut lowers the recovery point on the disk first (H1, H36)",
			Old:  "if l.recorded.Load() <= int64(end) {", New: "if true || l.recorded.Load() <= int64(end) {",
		},
		{
			Name: "lose-producers-at-start", File: "storage/recover.go",
			Rule: "the window of each producer is rebuilt at start (H26)",
			Old:  "\tl.producers = ps\n\treturn nil", New: "\t_ = ps\n\treturn nil",
		},
		{
			Name: "window-of-one", File: "storage/producer.go",
			Rule: "the last five batches of a producer are recognised (H26)",
			Old:  "const windowSize = 5", New: "const windowSize = 1",
		},
		{
			Name: "followers-forget-producers", File: "storage/append.go",
			Rule: "followers keep the windows from what they replicate (H26)",
			Old:  "if b.HasProducer() {\n\t\t\tl.producers.noteBatch", New: "if b.HasProducer() && len(run) == len(b) && l.d.o.MaxProducers == 0 {\n\t\t\tl.producers.noteBatch",
		},
		{
			Name: "no-duplicates-known", File: "storage/producer.go",
			Rule: "a batch that comes again is answered with its place (H26, H27)",
			Old:  "if b.firstSeq() == s.first && b.lastSeq == s.last {", New: "if b.firstSeq() == s.first && b.lastSeq == s.last && false {",
		},
		{
			Name: "epochs-end-late", File: "storage/epoch.go",
			Rule: "an epoch ends where the next begins (H2)",
			Old:  "return es[i].epoch, es[i+1].start", New: "return es[i].epoch, end",
		},
		{
			Name: "keep-producers-on-cut", File: "storage/truncate.go",
			Rule: "a cut takes what it cut out of the producers' windows (H27)",
			Old:  "l.producers = ps\n\tl.heal(end)", New: "_ = ps\n\tl.heal(end)",
		},
		{
			Name: "shorten-without-sync", File: "storage/cutfiles.go",
			Rule: "a cut is durable before anything is appended (H1)",
			Old:  "if err := f.Sync(); err != nil {\n\t\treturn fmt.Errorf(\"sync %s: %w\", s.file.path(), err)", New: "if err := error(nil); err != nil {\n\t\treturn fmt.Errorf(\"sync %s: %w\", s.file.path(), err)",
		},
	}
}
