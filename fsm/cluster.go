package fsm

// InitCluster gives the cluster its id. Repeating it changes nothing.
type InitCluster struct {
	ClusterID string
}

func (c InitCluster) apply(e *edit) Result {
	switch {
	case c.ClusterID == "":
		return refused(BadCommand)
	case e.next.clusterID == c.ClusterID:
		return Result{}
	case e.next.clusterID != "":
		return refused(OtherCluster)
	}
	e.next.hash += hashCluster(c.ClusterID)
	e.next.clusterID = c.ClusterID
	return Result{}
}
