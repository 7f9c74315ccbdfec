package taskassignor;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.apache.kafka.streams.processor.internals.InternalTopicManager;
import org.apache.kafka.streams.processor.internals.TopologyMetadata.Subtopology;
import org.apache.kafka.streams.processor.internals.assignment.ClientState;
import org.apache.kafka.streams.processor.internals.assignment.LegacyTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.RackAwareTaskAssignor;

/** Kafka's older assignors are internal and want the leader's inner objects: here they are made from a snapshot. */
final class InternalAssignors {
    private static final StreamsConfig CONFIG = new StreamsConfig(Map.of("application.id", "a", "bootstrap.servers", "localhost:1"));

    private final Snapshot state;
    private final List<Long> activeCosts = new ArrayList<>();

    InternalAssignors(final Snapshot state) {
        this.state = state;
    }

    /** Adds the assignment, whether a probing rebalance is needed, whether racks counted, and the costs of the active rounds. */
    void answer(final LegacyTaskAssignor assignor, final ObjectNode reply) {
        final Map<ProcessId, ClientState> clients = state.isInOrder() ? new LinkedHashMap<>() : new TreeMap<>();
        for (final KafkaStreamsState client : state.kafkaStreamsStates(true).values()) {
            clients.put(client.processId(), new ClientState(
                client.previousActiveTasks(), client.previousStandbyTasks(), client.statefulTasksToLagSums(),
                client.clientTags(), client.numProcessingThreads(), client.processId()));
        }
        final Set<TaskId> stateful = state.isInOrder() ? new LinkedHashSet<>() : new HashSet<>();
        state.allTasks().values().stream()
            .filter(task -> task.topicPartitions().stream().anyMatch(TaskTopicPartition::isChangelog))
            .forEach(task -> stateful.add(task.id()));
        final RackAwareTaskAssignor racks = racks();
        final boolean probing = Stopwatch.time(() -> assignor
            .assign(clients, state.allTasks().keySet(), stateful, racks, state.assignmentConfigs()));
        final ArrayNode placements = reply.putArray("assignment");
        new TreeMap<>(clients).forEach((id, client) -> Questions.placement(placements, id, client.activeTasks(), client.standbyTasks()));
        reply.put("probing", probing).put("racks", racks.canEnableRackAwareAssignor());
        final ArrayNode costs = reply.putArray("activeCosts");
        activeCosts.forEach(costs::add);
    }

    private RackAwareTaskAssignor racks() {
        final Map<String, Node> brokers = new HashMap<>();
        final Map<TaskId, Set<TopicPartition>> sources = new HashMap<>();
        final Map<TaskId, Set<TopicPartition>> changelogs = new HashMap<>();
        final Map<Subtopology, Set<TaskId>> groups = new HashMap<>();
        final Map<TopicPartition, PartitionInfo> known = new HashMap<>();
        final Map<String, List<TopicPartitionInfo>> described = new HashMap<>();
        for (final TaskInfo task : state.allTasks().values()) {
            final TaskId id = task.id();
            groups.computeIfAbsent(new Subtopology(id.subtopology(), id.topologyName()), group -> new HashSet<>()).add(id);
            sources.put(id, new HashSet<>());
            changelogs.put(id, new HashSet<>());
            for (final TaskTopicPartition partition : task.topicPartitions()) {
                final TopicPartition name = partition.topicPartition();
                final List<Node> replicas = replicas(partition, brokers);
                final Node leader = replicas.isEmpty() ? null : replicas.get(0);
                if (partition.isSource()) {
                    sources.get(id).add(name);
                    final Node[] nodes = replicas.toArray(new Node[0]);
                    known.put(name, new PartitionInfo(name.topic(), name.partition(), leader, nodes, nodes));
                }
                if (partition.isChangelog()) {
                    changelogs.get(id).add(name);
                }
                described.computeIfAbsent(name.topic(), topic -> new ArrayList<>())
                    .add(new TopicPartitionInfo(name.partition(), leader, replicas, replicas));
            }
        }
        final Map<ProcessId, Map<String, Optional<String>>> clientRacks = new HashMap<>();
        state.kafkaStreamsStates(false).forEach((id, client) -> clientRacks.put(id, Map.of("consumer", client.rackId())));
        final InternalTopicManager topics = new InternalTopicManager(Time.SYSTEM, null, CONFIG) {
            @Override
            public Map<String, List<TopicPartitionInfo>> getTopicPartitionInfo(final Set<String> names) {
                final Map<String, List<TopicPartitionInfo>> found = new HashMap<>(described);
                found.keySet().retainAll(names);
                return found;
            }
        };
        final Cluster cluster = new Cluster("cluster", brokers.values(), known.values(), Set.of(), Set.of());
        return new RackAwareTaskAssignor(
            cluster, sources, changelogs, groups, clientRacks, topics, state.assignmentConfigs(), Time.SYSTEM) {
            @Override
            public long optimizeActiveTasks(final SortedSet<TaskId> tasks, final SortedMap<ProcessId, ClientState> clients,
                                            final int trafficCost, final int nonOverlapCost) {
                final long cost = super.optimizeActiveTasks(tasks, clients, trafficCost, nonOverlapCost);
                activeCosts.add(cost);
                return cost;
            }
        };
    }

    /** One broker per rack; a partition whose racks are not known lies on a broker without a rack. */
    private static List<Node> replicas(final TaskTopicPartition partition, final Map<String, Node> brokers) {
        final List<Node> found = new ArrayList<>();
        for (final String rack : new TreeSet<>(partition.rackIds().orElse(Set.of("")))) {
            found.add(brokers.computeIfAbsent(rack, name -> new Node(brokers.size(), "broker", 9092, name.isEmpty() ? null : name)));
        }
        return found;
    }
}
