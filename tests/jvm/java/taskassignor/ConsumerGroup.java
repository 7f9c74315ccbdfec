package taskassignor;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's sticky assignors for a plain consumer group: {"topics": {name: partitions}, "subscriptions": [[topic, ...], ...],
 * "members": [{"id", "subscription": position, "userData": base64 or null, "owned": {topic: [...]}, "generation"}]}. The
 * answer counts: what each member gets, what moved, and a digest of who has what.
 */
final class ConsumerGroup {
    private final Cluster cluster;
    private final Map<String, Subscription> subscriptions = new HashMap<>();
    private final Map<TopicPartition, String> before = new HashMap<>();

    ConsumerGroup(final JsonNode question) {
        final Node node = new Node(0, "localhost", 9092);
        final Node[] replicas = {node};
        final List<PartitionInfo> partitions = new ArrayList<>();
        question.get("topics").fields().forEachRemaining(topic -> {
            for (int partition = 0; partition < topic.getValue().asInt(); partition++) {
                partitions.add(new PartitionInfo(topic.getKey(), partition, node, replicas, replicas));
            }
        });
        cluster = new Cluster("id", List.of(node), partitions, Set.of(), Set.of());
        final List<List<String>> topics = new ArrayList<>();
        question.get("subscriptions").forEach(names -> {
            final List<String> found = new ArrayList<>();
            names.forEach(name -> found.add(name.asText()));
            topics.add(found);
        });
        final boolean cooperative = question.get("assignor").asText().equals("cooperative-sticky");
        question.get("members").forEach(member -> {
            final List<TopicPartition> owned = new ArrayList<>();
            member.get("owned").fields().forEachRemaining(topic ->
                topic.getValue().forEach(number -> owned.add(new TopicPartition(topic.getKey(), number.asInt()))));
            final String id = member.get("id").asText();
            owned.forEach(partition -> before.put(partition, id));
            final JsonNode data = member.get("userData");
            subscriptions.put(id, new Subscription(
                topics.get(member.get("subscription").asInt()),
                data.isNull() ? null : ByteBuffer.wrap(Base64.getDecoder().decode(data.asText())),
                cooperative ? owned : List.of(),
                cooperative ? member.get("generation").asInt() : -1,
                Optional.empty()));
        });
    }

    ObjectNode answer(final String name, final ObjectNode reply) {
        final ConsumerPartitionAssignor assignor =
            name.equals("cooperative-sticky") ? new CooperativeStickyAssignor() : new StickyAssignor();
        final GroupSubscription group = new GroupSubscription(subscriptions);
        final Map<String, Assignment> found = Stopwatch.time(() -> assignor.assign(cluster, group)).groupAssignment();
        int least = Integer.MAX_VALUE;
        int most = 0;
        int moved = 0;
        final MessageDigest digest = sha256();
        for (final Map.Entry<String, Assignment> member : new TreeMap<>(found).entrySet()) {
            final List<TopicPartition> given = member.getValue().partitions();
            least = Math.min(least, given.size());
            most = Math.max(most, given.size());
            final String[] lines = new String[given.size()];
            for (int position = 0; position < lines.length; position++) {
                final TopicPartition partition = given.get(position);
                final String owner = before.get(partition);
                moved += owner != null && !owner.equals(member.getKey()) ? 1 : 0;
                lines[position] = member.getKey() + " " + partition.topic() + " " + partition.partition() + "\n";
            }
            Arrays.sort(lines);
            digest.update(String.join("", lines).getBytes(StandardCharsets.UTF_8));
        }
        final String decisions = HexFormat.of().formatHex(digest.digest()).substring(0, 16);
        return reply.put("min", least).put("max", most).put("moves", moved).put("decisions", decisions);
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (final NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
