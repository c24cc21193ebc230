package main

import (
	"cmp"
	"fmt"
	"math/rand"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// member is a pod that waits for a node. set: its name without the number, as those of its pod set have it.
// options: the nodes that took it when the cluster had none of the others.
type member struct {
	pod     *v1.Pod
	gang    *Gang
	set     string
	options map[string]bool
}

// order is one in which the pods come. Where victim is given, the adversary alone plays it, to take that pod's nodes.
type order struct {
	name   string
	pods   []*member
	victim *member
}

// orders lists those in which the pods come: by gangs, mixed, by size, by choice, and shuffled.
func orders(pods []*member, seed int64, shuffles int) []order {
	sorted := func(less func(a, b *member) int) []*member {
		found := slices.Clone(pods)
		slices.SortStableFunc(found, less)
		return found
	}
	turn, count := map[*member]int{}, map[*Gang]int{}
	for _, each := range pods {
		turn[each] = count[each.gang]
		count[each.gang]++
	}
	smallest := sorted(func(a, b *member) int { return slices.Compare(size(a.pod), size(b.pod)) })
	freest := sorted(func(a, b *member) int { return cmp.Compare(len(b.options), len(a.options)) })
	found := []order{
		{name: "gang by gang", pods: pods},
		{name: "gang by gang, last first", pods: reversed(pods)},
		{name: "interleaved", pods: sorted(func(a, b *member) int { return cmp.Compare(turn[a], turn[b]) })},
		{name: "smallest first", pods: smallest},
		{name: "largest first", pods: reversed(smallest)},
		{name: "without a choice last", pods: freest},
		{name: "without a choice first", pods: reversed(freest)},
	}
	draw := rand.New(rand.NewSource(seed))
	for i := range shuffles {
		mixed := slices.Clone(pods)
		draw.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		found = append(found, order{name: fmt.Sprintf("shuffle %d", i), pods: mixed})
	}
	for i, each := range pods {
		if i == 0 || pods[i-1].set != each.set {
			var others, own []*member
			for _, other := range pods {
				if other.set == each.set {
					own = append(own, other)
				} else {
					others = append(others, other)
				}
			}
			found = append(found, order{name: each.set + " last", pods: append(others, own...), victim: each})
		}
	}
	return found
}

func reversed(pods []*member) []*member {
	found := slices.Clone(pods)
	slices.Reverse(found)
	return found
}

// size is what a pod asks for: extended resources first, then cores and memory.
func size(pod *v1.Pod) []int64 {
	var devices, cores, memory int64
	for _, container := range pod.Spec.Containers {
		for name, amount := range container.Resources.Requests {
			switch name {
			case v1.ResourceCPU:
				cores += amount.MilliValue()
			case v1.ResourceMemory:
				memory += amount.Value()
			default:
				devices += amount.Value()
			}
		}
	}
	return []int64{devices, cores, memory}
}
