package fsm

import (
	"fmt"
	"slices"
	"strings"
)

// ConfigOp is one step of a change of configs that a client asks for.
type ConfigOp struct {
	Name  string
	Op    ConfigOpKind
	Value string
}

// ConfigOpKind says what a ConfigOp does.
type ConfigOpKind uint8

// The kinds of ConfigOp. The last two are for lists: what is there already is not
// appended again, what is not there need not be subtracted.
const (
	SetConfig ConfigOpKind = iota
	DeleteConfig
	AppendConfig
	SubtractConfig
)

// PlanConfigs turns steps into the changes that they come to on t, none for what
// is already so. The error says what cannot be honoured, as that of
// ParseTopicConfigs.
func (t *Topic) PlanConfigs(ops []ConfigOp) ([]ConfigChange, error) {
	rows := TopicConfigs()
	var changes []ConfigChange
	for i, op := range ops {
		if slices.ContainsFunc(ops[:i], func(o ConfigOp) bool { return o.Name == op.Name }) {
			return nil, fmt.Errorf("topic config %s: %w: it is given twice", op.Name, ErrInvalidConfig)
		}
		ch, err := t.planConfig(op, rows)
		if err != nil {
			return nil, err
		}
		if !sameText(ch.Was, ch.Now) {
			changes = append(changes, ch)
		}
	}
	return changes, nil
}

// PlanReplacement returns the changes after which t has exactly these configs.
func (t *Topic) PlanReplacement(configs [][2]string) ([]ConfigChange, error) {
	ops := make([]ConfigOp, 0, len(configs))
	for _, kv := range configs {
		ops = append(ops, ConfigOp{Name: kv[0], Value: kv[1]})
	}
	for _, kv := range t.sortedConfigs() {
		if !slices.ContainsFunc(configs, func(given [2]string) bool { return given[0] == kv[0] }) {
			ops = append(ops, ConfigOp{Name: kv[0], Op: DeleteConfig})
		}
	}
	return t.PlanConfigs(ops)
}

func (t *Topic) planConfig(op ConfigOp, rows []ConfigRow) (ConfigChange, error) {
	ch := ConfigChange{Name: op.Name}
	if value, set := t.Configs[op.Name]; set {
		ch.Was = &value
	}
	i := slices.IndexFunc(rows, func(r ConfigRow) bool { return r.Name == op.Name })
	if op.Op == DeleteConfig {
		if i < 0 && ch.Was == nil && !slices.Contains(withoutEffect(), op.Name) {
			return ch, notARow(op.Name, rows)
		}
		return ch, nil
	}
	if i < 0 {
		return ch, notARow(op.Name, rows)
	}
	value := op.Value
	if op.Op != SetConfig {
		if rows[i].Type != ListConfig {
			return ch, fmt.Errorf("topic config %s: %w: it is no list, so nothing can be appended or subtracted", op.Name, ErrInvalidConfig)
		}
		present := rows[i].Default
		if ch.Was != nil {
			present = *ch.Was
		}
		value = changeList(present, op)
	}
	if err := rows[i].set(new(TopicConfig), value); err != nil {
		return ch, fmt.Errorf("topic config %s=%q: %w: allowed is %s", op.Name, value, err, rows[i].Values)
	}
	ch.Now = &value
	return ch, nil
}

// changeList appends items to a list or takes them from it.
func changeList(present string, op ConfigOp) string {
	items, given := configList(present), configList(op.Value)
	if op.Op == SubtractConfig {
		items = slices.DeleteFunc(items, func(s string) bool { return slices.Contains(given, s) })
		return strings.Join(items, ",")
	}
	for _, s := range given {
		if !slices.Contains(items, s) {
			items = append(items, s)
		}
	}
	return strings.Join(items, ",")
}

// configList splits the value of a list config.
func configList(value string) []string {
	var items []string
	for _, s := range strings.Split(value, ",") {
		if s = strings.TrimSpace(s); s != "" {
			items = append(items, s)
		}
	}
	return items
}

func sameText(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
