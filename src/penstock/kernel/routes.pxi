# The topics of an engine: their tails and routes.


cdef class Routes(Poller):
    def tail(self, bytes topic not None, i64 start_offset, size_t memory_bytes_max,
             int partition=0):
        cdef Route route = self.hub.routes.get(topic)
        cdef Tail tail
        if not 0 <= partition < PARTITIONS_MAX:
            raise ValueError(f"{partition} is no number of a partition")
        if route is not None and route.find(partition) is not None:
            raise ValueError(f"there is a tail for {topic!r} {partition} already")
        tail = Tail(self.hub, topic, start_offset, memory_bytes_max, partition)
        if route is None:
            route = self.hub.routes[topic] = Route()
        route.add(tail)
        return tail

    def route(self, bytes topic not None, u32 count=1):
        return (<Route?>self.hub.routes[topic]).pick(count)

    def set_hash_partitions(self, bytes topic not None, int count):
        cdef Route route = self.hub.routes[topic]
        if not 0 < count <= PARTITIONS_MAX:
            raise ValueError(f"keys cannot be spread over {count} partitions")
        route.hash_partitions = count

    def set_extended(self, bytes topic not None, bint extended):
        cdef Route route = self.hub.routes[topic]
        route.extended = extended

    def require_partition(self, bytes topic not None, bint needs_partition):
        cdef Route route = self.hub.routes[topic]
        route.needs_partition = needs_partition

    def detach_tail(self, bytes topic not None, int partition=0):
        cdef Route route = self.hub.routes.get(topic)
        cdef Tail tail = route.find(partition) if route is not None else None
        if tail is not None and route.remove(tail):
            del self.hub.routes[topic]
        return tail

    def forget_tail(self, bytes topic not None, int partition=0):
        cdef Tail tail = self.detach_tail(topic, partition)
        if tail is not None:
            tail.fail_from(tail.committed_end)
            tail.drop_open()
