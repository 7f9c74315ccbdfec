package taskassignor;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
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
import org.apache.kafka.streams.processor.assignment.TaskAssignor;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.apache.kafka.streams.processor.internals.InternalTopicManager;
import org.apache.kafka.streams.processor.internals.TopologyMetadata.Subtopology;
import org.apache.kafka.streams.processor.internals.assignment.ClientState;
import org.apache.kafka.streams.processor.internals.assignment.FallbackPriorTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.HighAvailabilityTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.LegacyTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.RackAwareTaskAssignor;

/**
 * What Java would decide without the bridge: Kafka's default assignor, called as Kafka Streams itself calls it, or the
 * class in python.task.assignor.java.class.
 *
 * Kafka offers its default only to itself; what is used of its inside is equal in 3.8 to 4.3.
 */
final class JavaDecision {
    private JavaDecision() { }

    /** The class in python.task.assignor.java.class, made and configured as Kafka does it. */
    static TaskAssignor given(final Settings settings) throws Exception {
        final ClassLoader loader = Thread.currentThread().getContextClassLoader();
        final Class<?> found = Class.forName(settings.javaClass, true, loader == null ? JavaDecision.class.getClassLoader() : loader);
        final TaskAssignor assignor = (TaskAssignor) found.getDeclaredConstructor().newInstance();
        assignor.configure(settings.all);
        return assignor;
    }

    static Decision ofDefault(final State state) {
        final Map<ProcessId, ClientState> clients = new TreeMap<>();
        for (int client = 0; client < state.clients.length; client++) {
            final KafkaStreamsState one = state.clients[client];
            final Map<TaskId, Long> lags = state.hasLags ? one.statefulTasksToLagSums() : Map.of();
            clients.put(state.processes[client], new ClientState(one.previousActiveTasks(), one.previousStandbyTasks(), lags,
                one.clientTags(), one.numProcessingThreads(), state.processes[client]));
        }
        final Set<TaskId> all = new HashSet<>(List.of(state.tasks));
        final Set<TaskId> stateful = new HashSet<>();
        for (int task = 0; task < state.tasks.length; task++) {
            if (state.hasChangelog[task]) {
                stateful.add(state.tasks[task]);
            }
        }
        // Without lags Kafka itself falls back to this.
        final LegacyTaskAssignor assignor = state.hasLags ? new HighAvailabilityTaskAssignor() : new FallbackPriorTaskAssignor();
        final boolean probes = assignor.assign(clients, all, stateful, racks(state), state.configs);
        final int count = state.clients.length;
        final Decision decision = new Decision(new int[count][], new int[count][], new long[count]);
        for (int client = 0; client < count; client++) {
            final ClientState given = clients.get(state.processes[client]);
            decision.active[client] = Decision.numbers(state, given.activeTasks());
            decision.standby[client] = Decision.numbers(state, given.standbyTasks());
            decision.deadlineMs[client] = probes && client == 0 ? state.nowMs + state.configs.probingRebalanceIntervalMs() : State.MISSING;
        }
        return decision;
    }

    /** Kafka's knowledge of racks, put together again from what it told the assignor. */
    private static RackAwareTaskAssignor racks(final State state) {
        final Map<TaskId, Set<TopicPartition>> sources = new HashMap<>();
        final Map<TaskId, Set<TopicPartition>> changelogs = new HashMap<>();
        final Map<Subtopology, Set<TaskId>> groups = new HashMap<>();
        final Map<String, Node> nodes = new LinkedHashMap<>();
        final Map<TopicPartition, PartitionInfo> partitions = new LinkedHashMap<>();
        final Map<String, List<TopicPartitionInfo>> described = new HashMap<>();
        for (int task = 0; task < state.tasks.length; task++) {
            final TaskId id = state.tasks[task];
            groups.computeIfAbsent(new Subtopology(id.subtopology(), id.topologyName()), any -> new HashSet<>()).add(id);
            sources.put(id, new HashSet<>());
            changelogs.put(id, new HashSet<>());
            for (final TaskTopicPartition one : state.partitions[task]) {
                final TopicPartition partition = one.topicPartition();
                if (one.isSource()) {
                    sources.get(id).add(partition);
                }
                if (one.isChangelog()) {
                    changelogs.get(id).add(partition);
                }
                final List<Node> replicas = new ArrayList<>();
                for (final String rack : one.rackIds().orElse(Set.of())) {
                    replicas.add(nodes.computeIfAbsent(rack, name -> new Node(nodes.size(), "", -1, name)));
                }
                final Node[] all = replicas.toArray(new Node[0]);
                final Node leader = replicas.isEmpty() ? null : replicas.get(0);
                if (partitions.put(partition, new PartitionInfo(partition.topic(), partition.partition(), leader, all, all)) == null) {
                    described.computeIfAbsent(partition.topic(), any -> new ArrayList<>())
                        .add(new TopicPartitionInfo(partition.partition(), leader, replicas, replicas));
                }
            }
        }
        final Map<ProcessId, Map<String, Optional<String>>> clientRacks = new HashMap<>();
        for (int client = 0; client < state.clients.length; client++) {
            final Map<String, Optional<String>> ofConsumers = new HashMap<>();
            for (final String consumer : state.clients[client].consumerClientIds()) {
                ofConsumers.put(consumer, state.clients[client].rackId());
            }
            clientRacks.put(state.processes[client], ofConsumers);
        }
        final Cluster cluster = new Cluster("bridge", nodes.values(), partitions.values(), Set.of(), Set.of());
        final InternalTopicManager manager = "none".equals(state.configs.rackAwareAssignmentStrategy()) ? null : new Described(described);
        return new RackAwareTaskAssignor(cluster, sources, changelogs, groups, clientRacks, manager, state.configs, Time.SYSTEM);
    }

    /** Answers the one question that Kafka's rack-aware code asks of the brokers. */
    private static final class Described extends InternalTopicManager {
        private final Map<String, List<TopicPartitionInfo>> topics;

        Described(final Map<String, List<TopicPartitionInfo>> topics) {
            super(Time.SYSTEM, null, new StreamsConfig(Map.of("application.id", "bridge", "bootstrap.servers", "127.0.0.1:1"), false) { });
            this.topics = topics;
        }

        @Override public Map<String, List<TopicPartitionInfo>> getTopicPartitionInfo(final Set<String> names) {
            final Map<String, List<TopicPartitionInfo>> found = new HashMap<>(topics);
            found.keySet().retainAll(names);
            return found;
        }
    }
}
